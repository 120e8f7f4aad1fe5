{{- define "voxgate.labels" -}}
app.kubernetes.io/name: voxgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
