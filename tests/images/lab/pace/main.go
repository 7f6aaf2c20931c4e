// pace slows things down to a fixed rate, so that a pull on a small machine shows what a large node would show.
//
//	pace serve -listen ADDR -behind ADDR -storage DIR -connection BYTES_S -network BYTES_S
//	    a registry's front: blobs come from its storage folder at a limited rate, all else is passed on to it
//	pace filter BYTES_S COMMAND ARGUMENT...
//	    runs COMMAND with this standard input and hands on what it writes at a limited rate
//
// A rate is kept on average: who was late because the machine was busy catches up within a second.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"
)

const (
	slice   = 32 << 10
	catchUp = time.Second
)

// limiter hands out times at which bytes may go; several goroutines may share one.
type limiter struct {
	mutex sync.Mutex
	rate  float64
	next  time.Time
}

func (l *limiter) wait(bytes int) {
	if l == nil || l.rate <= 0 {
		return
	}
	l.mutex.Lock()
	now := time.Now()
	if l.next.IsZero() {
		l.next = now
	}
	if oldest := now.Add(-catchUp); l.next.Before(oldest) {
		l.next = oldest
	}
	l.next = l.next.Add(time.Duration(float64(bytes) / l.rate * float64(time.Second)))
	pause := time.Until(l.next)
	l.mutex.Unlock()
	time.Sleep(pause)
}

func copyPaced(to io.Writer, from io.Reader, limiters ...*limiter) error {
	buffer := make([]byte, slice)
	for {
		count, err := from.Read(buffer)
		for _, l := range limiters {
			l.wait(count)
		}
		if count > 0 {
			if _, broken := to.Write(buffer[:count]); broken != nil {
				return broken
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var blob = regexp.MustCompile(`^/v2/.+/blobs/sha256:(..)([0-9a-f]+)$`)
var ranged = regexp.MustCompile(`^bytes=(\d+)-(\d*)$`)

type front struct {
	storage    string
	connection float64
	network    *limiter
	behind     http.Handler
}

func (f *front) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	found := blob.FindStringSubmatch(request.URL.Path)
	if found == nil || request.Method != http.MethodGet {
		f.behind.ServeHTTP(writer, request)
		return
	}
	path := filepath.Join(f.storage, "docker/registry/v2/blobs/sha256", found[1], found[1]+found[2], "data")
	file, err := os.Open(path)
	if err != nil {
		http.NotFound(writer, request)
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
		return
	}
	first, last, status := int64(0), info.Size()-1, http.StatusOK
	if asked := ranged.FindStringSubmatch(request.Header.Get("Range")); asked != nil {
		status = http.StatusPartialContent
		first, _ = strconv.ParseInt(asked[1], 10, 64)
		if asked[2] != "" {
			if end, _ := strconv.ParseInt(asked[2], 10, 64); end < last {
				last = end
			}
		}
		writer.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, info.Size()))
	}
	writer.Header().Set("Content-Type", "application/octet-stream")
	writer.Header().Set("Accept-Ranges", "bytes")
	writer.Header().Set("Content-Length", strconv.FormatInt(last-first+1, 10))
	writer.WriteHeader(status)
	own := &limiter{rate: f.connection}
	_ = copyPaced(writer, io.NewSectionReader(file, first, last-first+1), own, f.network)
}

func serve(arguments []string) error {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	listen := flags.String("listen", "", "address to listen on")
	behind := flags.String("behind", "", "address of the registry")
	storage := flags.String("storage", "", "the registry's storage folder")
	connection := flags.Float64("connection", 0, "bytes per second of one request, 0 for no limit")
	network := flags.Float64("network", 0, "bytes per second of all requests together, 0 for no limit")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: *behind})
	handler := &front{storage: *storage, connection: *connection, network: &limiter{rate: *network}, behind: proxy}
	server := &http.Server{Addr: *listen, Handler: handler, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

func filter(arguments []string) error {
	if len(arguments) < 2 {
		return errors.New("usage: pace filter BYTES_S COMMAND ARGUMENT...")
	}
	rate, err := strconv.ParseFloat(arguments[0], 64)
	if err != nil {
		return err
	}
	command := exec.Command(arguments[1], arguments[2:]...)
	command.Stdin, command.Stderr = os.Stdin, os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	if err := copyPaced(os.Stdout, output, &limiter{rate: rate}); err != nil {
		return err
	}
	return command.Wait()
}

func main() {
	log.SetFlags(0)
	verbs := map[string]func([]string) error{"serve": serve, "filter": filter}
	if len(os.Args) < 2 || verbs[os.Args[1]] == nil {
		log.Fatal("usage: pace serve|filter ...")
	}
	if err := verbs[os.Args[1]](os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}
