// Package deploy has what Voxgate is deployed with. Its tests check the files as far as that can be done without a registry and a cluster.
package deploy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

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
	if testing.Short() {
		t.Skip("takes seconds")
	}
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

// Under the unit's user and privileges the gateway reads keys that were made as docs/deploy.md says, and an MCP server that runs in Node
// starts. systemd does not run here: setpriv takes the privileges away, and a process makes writable code impossible if the unit does.
func TestUnitRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root may become another user")
	}
	unit, err := os.ReadFile("voxgate.service")
	if err != nil {
		t.Fatal(err)
	}
	const nobody = "65534"
	home, err := os.MkdirTemp("/tmp", "voxgate-unit-") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	program, keys, tools, server := home+"/gateway", home+"/keys.json", home+"/tools.json", home+"/server.mjs"
	run(t, nil, "go", "build", "-o", program, "voxgate/gateway")
	run(t, nil, program, "key", "new", "--keys", keys, "my-backend")
	for file, text := range map[string]string{
		tools: `{"mcp": [{"name": "node", "command": ["node", "` + server + `"]}]}`,
		server: `import { createInterface } from 'node:readline';
			const results = {
				initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'node', version: '1' } }),
				'tools/list': () => ({ tools: [{ name: 'written_by_node', description: process.env.HOME, inputSchema: { type: 'object' } }] }),
			};
			createInterface({ input: process.stdin }).on('line', (line) => {
				const { id, method, params } = JSON.parse(line);
				if (id === undefined) return;
				const result = results[method]?.(params);
				console.log(JSON.stringify({ jsonrpc: '2.0', id, ...(result ? { result } : { error: { code: -32601, message: 'unknown' } }) }));
			});`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, nil, "chown", "-R", nobody+":"+nobody, home)
	args := []string{"--reuid=" + nobody, "--regid=" + nobody, "--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"}
	if bytes.Contains(unit, []byte("\nMemoryDenyWriteExecute=yes")) { // PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN: prctl(2)
		args = append(args, "python3", "-c",
			"import ctypes, os, sys; ctypes.CDLL(None).prctl(65, 1, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])")
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, "setpriv", append(args, program, "serve", "--log", "json")...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "VOXGATE_ADDR=127.0.0.1:0", "VOXGATE_KEYS=" + keys, "VOXGATE_TOOLS=" + tools,
		"VOXGATE_AGENTS=" + home,
	}
	if err := os.WriteFile(home+"/desk.md", []byte("---\ntools: [written_by_node]\n---\nHi."), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	listening := false
	for lines := bufio.NewScanner(log); lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), `"msg":"listening"`) {
			listening = true
			stop()
		}
	}
	_ = cmd.Wait()
	if text := all.String(); !listening || strings.Contains(text, "does not start") || strings.Contains(text, "does not exist") {
		t.Errorf("the gateway or its MCP server did not start:\n%s", text)
	}
}

// The chart gives what Kubernetes takes, for each file of values, and refuses what would not run.
func TestChart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	for name, test := range map[string]struct {
		values string
		has    []string // what the manifests have
	}{
		"least": {`{keysSecret: k, secret: s}`, []string{
			"value: \":3001\"", "value: \"127.0.0.1:9090\"", "host: 127.0.0.1", "secretName: k", "name: s", "replicas: 2",
		}},
		"one pod":  {`{keysSecret: k, replicas: 1}`, []string{"replicas: 1"}},
		"insecure": {`{replicas: 1, settings: {VOXGATE_INSECURE: "true"}}`, []string{"VOXGATE_INSECURE"}},
		"all": {
			`{network: hostPort, secret: s, keysSecret: k, autoscaling: {enabled: true, min: 2, max: 9, sessions: 100},
			ingress: {enabled: true, className: nginx, host: a.example.com, tlsSecret: tls, annotations: {a: b}, trustedProxies: 10.0.0.0/8},
			nodeSelector: {pool: voice}, agents: {desk: "---\nnumbers: ['*']\n---\nBe {{brief}}."}, files: {sip: '{"a": "${B}"}', tools: "{}"},
			extraEnv: [{name: OTEL_EXPORTER_OTLP_ENDPOINT, value: "http://otel:4318"}],
			extraVolumes: [{name: recordings, persistentVolumeClaim: {claimName: r}}],
			extraVolumeMounts: [{name: recordings, mountPath: /recordings}]}`,
			[]string{
				"value: \"$(POD_IP):9090\"", "VOXGATE_PUBLIC_IP", "kind: Ingress", "kind: HorizontalPodAutoscaler", "value: \"10.0.0.0/8\"",
				"value: \"a.example.com\"", "desk.md: \"---\\nnumbers: ['*']\\n---\\nBe {{brief}}.\"", "VOXGATE_SIP", "/etc/voxgate-files/sip.json",
				"OTEL_EXPORTER_OTLP_ENDPOINT", "claimName: r", "mountPath: /recordings", "checksum/files",
			},
		},
		"only what is mounted besides": {
			`{replicas: 1, settings: {VOXGATE_INSECURE: "1"}, extraVolumes: [{name: a, emptyDir: {}}],
			extraVolumeMounts: [{name: a, mountPath: /a}]}`,
			[]string{"emptyDir: {}"},
		},
	} {
		manifests, err := renderChart(t, test.values)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range test.has {
			if !strings.Contains(manifests, want) {
				t.Errorf("%s: no %q in\n%s", name, want, manifests)
			}
		}
		file := filepath.Join(t.TempDir(), "manifests.yaml")
		if err := os.WriteFile(file, []byte(manifests), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, nil, tool("kubernetes-validate"), "--strict", "-k", "1.31", file)
	}
	for values, want := range map[string]string{
		`{}`:              "keysSecret: name a secret",
		`{keysSecret: k}`: "secret: more than one pod needs",
		`{keysSecret: k, replicas: 1, ingress: {enabled: true}}`: "ingress.trustedProxies: name the addresses",
		`{keysSecret: k, replicas: 1, files: {keys: "{}"}}`:      "files.keys: is none of tools",
	} {
		if manifests, err := renderChart(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\n%s", values, err, manifests)
		}
	}
	run(t, nil, tool("helm"), "lint", "helm", "--strict", "--kube-version", "1.31.0", "--set", "keysSecret=k,secret=s")
	checkSettings(t, "helm/values.yaml", "helm/templates/deployment.yaml")
}

// renderChart runs "helm template" with a file of values.
func renderChart(t *testing.T, values string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(values, "\t", " ")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tool("helm"), "template", "voice", "helm", "--kube-version", "1.31.0", "--values", file).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(out), nil
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
