// pulumi-language-python for the tests: the part of the Python language host that running a program and a policy
// pack needs. The released host cannot be built from published Go modules, while everything it stands on can: the
// SDK finds the interpreter (package toolchain), and pulumi-language-python-exec, which ships inside the SDK module,
// runs the program. What a released host offers beyond that (installing dependencies, generating code) answers
// "unimplemented" here.
package main

import (
	"flag"
	"fmt"
	"log"

	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
)

func main() {
	flag.Parse()
	runtime := &pythonRuntime{engineAddress: flag.Arg(0)}
	server, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: make(chan bool),
		Init: func(registrar *grpc.Server) error {
			pulumirpc.RegisterLanguageRuntimeServer(registrar, runtime)
			return nil
		},
	})
	if err != nil {
		log.Fatalf("language host: %v", err)
	}
	fmt.Println(server.Port) // the engine reads the port from the first line
	if err := <-server.Done; err != nil {
		log.Fatalf("language host: %v", err)
	}
}
