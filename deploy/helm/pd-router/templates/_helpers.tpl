{{- define "pd-router.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{- define "pd-router.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pd-router.meta" -}}
name: {{ include "pd-router.name" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "pd-router.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The file that --config reads. The port is fixed: Service, probes and the image's health check have it. */}}
{{- define "pd-router.config" -}}
{{- $own := dict "port" 23333 }}
{{- if .Values.model }}{{ $_ := set $own "model-path" "/model" }}{{ end }}
{{- toYaml (merge $own .Values.config) }}
{{- end }}
