package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	"github.com/pulumi/pulumi/sdk/v3/go/common/version"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"github.com/pulumi/pulumi/sdk/v3/python/toolchain"
	"google.golang.org/protobuf/types/known/emptypb"
)

// messageShown is the exit code with which pulumi-language-python-exec says that the program has told the person
// what is wrong already.
const messageShown = 32

type pythonRuntime struct {
	pulumirpc.UnimplementedLanguageRuntimeServer
	engineAddress string
}

// python builds a command line for the interpreter that the project chose: its `virtualenv` option, or the ambient one.
func python(ctx context.Context, program *pulumirpc.ProgramInfo, args ...string) (*exec.Cmd, error) {
	options := program.GetOptions().GetFields()
	chosen := toolchain.PythonOptions{
		Root:       program.GetRootDirectory(),
		ProgramDir: program.GetProgramDirectory(),
		Virtualenv: options["virtualenv"].GetStringValue(),
	}
	switch name := options["toolchain"].GetStringValue(); name {
	case "", "pip":
		chosen.Toolchain = toolchain.Pip
	case "uv":
		chosen.Toolchain = toolchain.Uv
	case "poetry":
		chosen.Toolchain = toolchain.Poetry
	default:
		return nil, fmt.Errorf("runtime.options.toolchain: %q is none of pip, uv, poetry", name)
	}
	found, err := toolchain.ResolveToolchain(chosen)
	if err != nil {
		return nil, err
	}
	if err := found.ValidateVenv(ctx); err != nil {
		return nil, err
	}
	return found.Command(ctx, args...)
}

func (r *pythonRuntime) Handshake(
	_ context.Context, request *pulumirpc.LanguageHandshakeRequest,
) (*pulumirpc.LanguageHandshakeResponse, error) {
	r.engineAddress = request.GetEngineAddress()
	return &pulumirpc.LanguageHandshakeResponse{}, nil
}

func (r *pythonRuntime) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: version.Version}, nil
}

// GetRequiredPackages names none: the tests put every provider on PATH, and nothing may be downloaded.
func (r *pythonRuntime) GetRequiredPackages(
	context.Context, *pulumirpc.GetRequiredPackagesRequest,
) (*pulumirpc.GetRequiredPackagesResponse, error) {
	return &pulumirpc.GetRequiredPackagesResponse{}, nil
}

func (r *pythonRuntime) Run(ctx context.Context, request *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	entryPoint := request.GetInfo().GetEntryPoint()
	if entryPoint == "" {
		entryPoint = "."
	}
	args := []string{
		"-u", filepath.Join(filepath.Dir(self), "pulumi-language-python-exec"),
		"--engine", r.engineAddress,
		"--monitor", request.GetMonitorAddress(),
		"--organization", request.GetOrganization(),
		"--project", request.GetProject(),
		"--stack", request.GetStack(),
		"--root_directory", request.GetInfo().GetRootDirectory(),
		"--pwd", request.GetPwd(),
		"--parallel", strconv.Itoa(int(request.GetParallel())),
		"--dry_run", strconv.FormatBool(request.GetDryRun()),
		entryPoint,
	}
	command, err := python(ctx, request.GetInfo(), append(args, request.GetArgs()...)...)
	if err != nil {
		return nil, err
	}
	settings, err := configuration(request)
	if err != nil {
		return nil, err
	}
	if command.Env == nil {
		command.Env = os.Environ()
	}
	command.Env = append(command.Env, settings...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	code, err := exitCode(command.Run())
	switch {
	case err != nil:
		return &pulumirpc.RunResponse{Error: "the program could not be started: " + err.Error()}, nil
	case code == messageShown:
		return &pulumirpc.RunResponse{Bail: true}, nil
	case code != 0:
		return &pulumirpc.RunResponse{Error: fmt.Sprintf("the program ended with exit code %d", code)}, nil
	}
	return &pulumirpc.RunResponse{}, nil
}

// configuration hands the stack's settings to the program in the two variables that the SDK reads.
func configuration(request *pulumirpc.RunRequest) ([]string, error) {
	values := request.GetConfig()
	if values == nil {
		values = map[string]string{}
	}
	settings, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	secretKeys, err := json.Marshal(append([]string{}, request.GetConfigSecretKeys()...))
	if err != nil {
		return nil, err
	}
	return []string{"PULUMI_CONFIG=" + string(settings), "PULUMI_CONFIG_SECRET_KEYS=" + string(secretKeys)}, nil
}

// RunPlugin runs a plugin written in Python. A policy pack is one: the analyzer `pulumi.policy` loads its folder.
func (r *pythonRuntime) RunPlugin(
	request *pulumirpc.RunPluginRequest, stream pulumirpc.LanguageRuntime_RunPluginServer,
) error {
	closer, stdout, stderr, err := rpcutil.MakeRunPluginStreams(stream, false)
	if err != nil {
		return err
	}
	defer closer.Close()

	folder := request.GetInfo().GetProgramDirectory()
	args := append([]string{"-u", folder}, request.GetArgs()...)
	if request.GetKind() == "analyzer" {
		args = append(append([]string{"-u", "-m", "pulumi.policy"}, request.GetArgs()...), folder)
	}
	command, err := python(stream.Context(), request.GetInfo(), args...)
	if err != nil {
		return err
	}
	command.Dir = request.GetPwd()
	command.Env = append(command.Env, request.GetEnv()...)
	command.Stdout, command.Stderr = stdout, stderr
	code, err := exitCode(command.Run())
	if err != nil {
		return err
	}
	if code == 0 {
		return nil
	}
	return stream.Send(&pulumirpc.RunPluginResponse{
		Output: &pulumirpc.RunPluginResponse_Exitcode{Exitcode: int32(code)},
	})
}

// exitCode separates a program that ran and ended with a code from one that could not be run at all.
func exitCode(result error) (int, error) {
	var exit *exec.ExitError
	if errors.As(result, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, result
}
