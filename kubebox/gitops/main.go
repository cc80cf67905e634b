// Command gitops prints what tools for deployments make of objects: the status that kstatus computes, as Flux and Helm
// do, and the health that a Lua script of Argo CD returns, in the interpreter that Argo CD uses.
//
//	gitops SCRIPT < LIST-OF-OBJECTS
package main

import (
	"encoding/json"
	"fmt"
	"os"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type health struct {
	Kstatus string `json:"kstatus"`
	Argo    string `json:"argo"`
	Message string `json:"message"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("usage: gitops SCRIPT < LIST-OF-OBJECTS")
	}
	var objects []unstructured.Unstructured
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		return err
	}
	found := make([]health, len(objects))
	for index, object := range objects {
		result, err := status.Compute(&object)
		if err != nil {
			return fmt.Errorf("object %d: %w", index, err)
		}
		argo, message, err := ask(arguments[0], object.Object)
		if err != nil {
			return fmt.Errorf("object %d: %w", index, err)
		}
		found[index] = health{string(result.Status), argo, message}
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// ask runs a script with the libraries that Argo CD opens for one.
func ask(script string, object map[string]any) (string, string, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return "", "", err
		}
	}
	state.SetGlobal("obj", value(state, object))
	if err := state.DoFile(script); err != nil {
		return "", "", err
	}
	answer, right := state.Get(-1).(*lua.LTable)
	if !right {
		return "", "", fmt.Errorf("the script returned no table")
	}
	return answer.RawGetString("status").String(), answer.RawGetString("message").String(), nil
}

func value(state *lua.LState, given any) lua.LValue {
	switch typed := given.(type) {
	case string:
		return lua.LString(typed)
	case bool:
		return lua.LBool(typed)
	case int64:
		return lua.LNumber(typed)
	case float64:
		return lua.LNumber(typed)
	case []any:
		table := state.NewTable()
		for _, item := range typed {
			table.Append(value(state, item))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for name, item := range typed {
			table.RawSetString(name, value(state, item))
		}
		return table
	}
	return lua.LNil
}
