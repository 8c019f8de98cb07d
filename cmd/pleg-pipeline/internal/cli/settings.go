package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v2"
)

// otelEndpoint is the environment variable for the receiver of all of OpenTelemetry's signals.
const otelEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"

// otelVariables are OpenTelemetry's variables that set a flag, unless the variable with our prefix
// does. OpenTelemetry's own code reads the others.
var otelVariables = map[string][]string{"otlp": {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", otelEndpoint}}

const (
	configFileFlag  = "config-file"
	printConfigFlag = "print-config"
	// envPrefix begins the environment variable of a flag: PLEG_PIPELINE_RELIST_PERIOD sets
	// --relist-period. See also [variables].
	envPrefix = "PLEG_PIPELINE_"
	// runSocketVariable is that of --socket: [socketVariable] names the daemon to ask.
	runSocketVariable = envPrefix + "RUN_SOCKET"
	commandLine       = "command line"
)

// settings gives flags their values from the environment and from a file. The command
// line counts first, then the environment, then the file.
type settings struct {
	file  string
	print bool
	// sources says where a flag's value comes from, unless it is the default.
	sources map[string]string
}

func (s *settings) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.file, configFileFlag, "", "YAML `FILE` with values of these flags, such as relist-period: 2s. The command\nline and the environment (PLEG_PIPELINE_RELIST_PERIOD) count first")
	cmd.Flags().BoolVar(&s.print, printConfigFlag, false, "print the value of every flag as such a file, and where it comes from, and exit")
}

func (s *settings) apply(flags *pflag.FlagSet, getenv func(string) string) error {
	s.sources = make(map[string]string)
	flags.Visit(func(f *pflag.Flag) { s.sources[f.Name] = commandLine })
	if err := s.applyEnvironment(flags, getenv); err != nil {
		return err
	}
	if s.file == "" {
		if flags.Changed(configFileFlag) {
			return errors.New("--config-file must not be empty: want the path of a YAML file")
		}
		return nil
	}
	values, err := readSettings(s.file)
	if err != nil {
		return fmt.Errorf("--config-file: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if f := flags.Lookup(name); f == nil || !isSetting(f) {
			return fmt.Errorf("--config-file: %s: unknown key %q: want the names of flags without the dashes", s.file, name)
		}
		if s.sources[name] != "" {
			continue
		}
		if err := s.set(flags, name, values[name], s.file); err != nil {
			return fmt.Errorf("--config-file: %s: %s: %w", s.file, name, err)
		}
	}
	return nil
}

func (s *settings) applyEnvironment(flags *pflag.FlagSet, getenv func(string) string) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		if s.sources[f.Name] != "" || !inEnvironment(f) {
			return
		}
		for _, variable := range variables(f.Name) {
			text := getenv(variable)
			if text == "" {
				continue
			}
			if failed := s.set(flags, f.Name, text, variable); failed != nil {
				err = errors.Join(err, fmt.Errorf("environment variable %s: %w", variable, failed))
			}
			return
		}
	})
	return err
}

// foreignVariable matches variables that Kubernetes sets for a Service with the program's name as
// prefix, and variables of our own tests.
var foreignVariable = regexp.MustCompile(`(^|_)(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)$|^TEST_`)

// checkVariables returns an error for a variable with our prefix that belongs to no flag: it would
// be ignored.
func checkVariables(flags *pflag.FlagSet, environ []string) (err error) {
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		key, ours := strings.CutPrefix(name, envPrefix)
		if !ours || foreignVariable.MatchString(key) {
			continue
		}
		if name == socketVariable || name == runSocketVariable {
			continue
		}
		f := flags.Lookup(strings.ToLower(strings.ReplaceAll(key, "_", "-")))
		if f == nil || name != variables(f.Name)[0] || !inEnvironment(f) {
			err = errors.Join(err, fmt.Errorf("environment variable %s: no flag has this name: want one of --print-config, such as %sRELIST_PERIOD", name, envPrefix))
		}
	}
	return err
}

// variables returns the environment variables of a flag. The first that is set counts.
func variables(flag string) []string {
	if flag == "socket" {
		return []string{runSocketVariable}
	}
	own := envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	return append([]string{own}, otelVariables[flag]...)
}

func (s *settings) set(flags *pflag.FlagSet, name, text, source string) error {
	if err := flags.Set(name, text); err != nil {
		return err
	}
	s.sources[name] = source
	return nil
}

// name returns a flag as errors name it: with the source of its value, unless the user
// typed it.
func (s *settings) name(flag string) string {
	if source := s.sources[flag]; source != commandLine {
		return fmt.Sprintf("--%s (%s)", flag, source)
	}
	return "--" + flag
}

// readSettings reads a mapping whose keys are unique. The values are the texts of the file, such as
// off or 1e3, not the values that YAML converts them to.
func readSettings(file string) (values map[string]string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(data, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return values, nil
}

// inEnvironment reports whether a variable may set a flag, and isSetting whether a file may.
func inEnvironment(f *pflag.Flag) bool { return f.Name != printConfigFlag && f.Name != "help" }
func isSetting(f *pflag.Flag) bool     { return inEnvironment(f) && f.Name != configFileFlag }

// write prints every flag as a line of a file that apply reads.
func (s *settings) write(w io.Writer, flags *pflag.FlagSet) error {
	var b strings.Builder
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		if !isSetting(f) {
			return
		}
		var value any = f.Value.String()
		if slices.Contains([]string{"bool", "int", "uint64", "float64"}, f.Value.Type()) {
			err = errors.Join(err, yaml.Unmarshal([]byte(f.Value.String()), &value))
		}
		line, failed := yaml.Marshal(map[string]any{f.Name: value})
		err = errors.Join(err, failed)
		source, comment := s.sources[f.Name], ""
		if source == "" {
			source, comment = "default", "# "
		}
		fmt.Fprintf(&b, "%s%s # %s\n", comment, strings.TrimSuffix(string(line), "\n"), source)
	})
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, b.String())
	return err
}
