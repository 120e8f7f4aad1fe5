// Package deploy has what Voxgate is deployed with. Its tests check the files as far as that can be done without a registry and a cluster.
package deploy

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"
)

// run runs a program that must succeed, and returns what it says.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// tool is a program of web/.venv.
func tool(name string) string { return filepath.Join("..", "web", ".venv", "bin", name) }

// The image is built as its field recommends, and has every library that the program needs.
func TestImage(t *testing.T) {
	t.Parallel()
	run(t, nil, tool("hadolint"), "../Dockerfile")
	image, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "gateway")
	run(t, nil, "go", "build", "-o", program, "voxgate/gateway")
	base := []string{"linux-vdso", "libc", "libm", "libgomp", "ld-linux"} // of distroless/cc, by its own list of packages
	for line := range strings.Lines(run(t, nil, "ldd", program)) {
		library := regexp.MustCompile(`[a-z-]+`).FindString(filepath.Base(strings.Fields(line)[0]))
		known := bytes.Contains(image, []byte("/"+library+".so"))
		for _, b := range base {
			known = known || strings.HasPrefix(library, b)
		}
		if !known {
			t.Errorf("the image lacks %s", strings.TrimSpace(line))
		}
	}
}

func TestCompose(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("example.env")
	if err != nil {
		t.Fatal(err)
	}
	filled := filepath.Join(t.TempDir(), ".env")
	if err := os.WriteFile(filled, regexp.MustCompile(`(?m)=$`).ReplaceAll(example, []byte("=secret")), 0o600); err != nil {
		t.Fatal(err)
	}
	config := run(t, nil, "docker-compose", "--env-file", filled, "-f", "compose.yaml", "config")
	if strings.Contains(config, "WARNING") { // of a variable that nobody sets
		t.Error(config)
	}
	run(t, []string{"DOMAIN=voice.example.com", "HOME=" + t.TempDir()}, "caddy", "validate", "--config", "Caddyfile", "--adapter", "caddyfile")
	for _, file := range []string{"prometheus.yml", "alerts.yml", "grafana/datasources.yml", "grafana/dashboards.yml"} {
		var any map[string]any
		data, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(data, &any)
		}
		if err != nil || len(any) == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	checkSettings(t, "compose.yaml")
}

func TestUnit(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("voxgate.service")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "voxgate.service")
	// The program is not there on the machine that tests this.
	if err := os.WriteFile(file, bytes.ReplaceAll(unit, []byte("/usr/local/bin/gateway serve"), []byte("/bin/true")), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, nil, "systemd-analyze", "verify", file)
	run(t, nil, "systemd-analyze", "security", "--offline=yes", "--threshold=20", file) // of 100; 16 when this was written
	checkSettings(t, "voxgate.service")
}

// The chart gives what Kubernetes takes, with and without what can be switched on.
func TestChart(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"as it is": "",
		"with all": `{network: hostPort, secret: s, keysSecret: k, autoscaling: {enabled: true, min: 2, max: 9, sessions: 100},
			ingress: {enabled: true, className: nginx, host: a.example.com, tlsSecret: tls, annotations: {a: b}}, nodeSelector: {pool: voice}}`,
	} {
		files := renderChart(t, change)
		for file, manifest := range files {
			if strings.TrimSpace(manifest) == "" {
				continue
			}
			path := filepath.Join(t.TempDir(), filepath.Base(file))
			if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
				t.Fatal(err)
			}
			run(t, nil, tool("kubernetes-validate"), "--strict", "-k", "1.31", path)
		}
		if on := strings.TrimSpace(files["ingress.yaml"]) != "" && strings.TrimSpace(files["autoscaler.yaml"]) != ""; on != (change != "") {
			t.Errorf("%s: %v", name, files)
		}
	}
	checkSettings(t, "helm/values.yaml", "helm/templates/deployment.yaml")
}

// renderChart does what "helm template" does with the few functions that the chart uses. Helm itself (the engine of 3.16) was tried by
// hand: it takes a minute to build.
func renderChart(t *testing.T, change string) map[string]string {
	values := map[string]any{}
	defaults, err := os.ReadFile("helm/values.yaml")
	if err == nil {
		err = yaml.Unmarshal(defaults, &values)
	}
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]any{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(change, "\t", " ")), &changed); err != nil {
		t.Fatal(err)
	}
	maps.Copy(values, changed)
	all := template.New("chart").Option("missingkey=error")
	all.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out bytes.Buffer
			err := all.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"nindent": func(n int, s string) string {
			return "\n" + strings.Repeat(" ", n) + strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", n))
		},
		"toYaml": func(v any) (string, error) {
			out, err := yaml.Marshal(v)
			return strings.TrimSpace(string(out)), err
		},
		"quote": func(v any) (string, error) {
			out, err := yaml.Marshal(v)
			return `"` + strings.Trim(strings.TrimSpace(string(out)), `"`) + `"`, err
		},
	})
	const folder = "helm/templates"
	var names []string
	err = fs.WalkDir(os.DirFS(folder), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		names = append(names, name)
		_, err = all.New(name).Parse(string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range names {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		var made strings.Builder
		if err := all.ExecuteTemplate(&made, name, map[string]any{"Values": values, "Release": map[string]any{"Name": "voice"}}); err != nil {
			t.Fatal(err)
		}
		out[name] = made.String()
	}
	return out
}

// checkSettings finds every setting of these files in docs/settings.md.
func checkSettings(t *testing.T, files ...string) {
	t.Helper()
	settings, err := os.ReadFile("../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`VOXGATE_[A-Z_]+`).FindAllString(string(text), -1) {
			if !bytes.Contains(settings, []byte("`"+name+"`")) {
				t.Errorf("%s: there is no setting %s", file, name)
			}
		}
	}
}
