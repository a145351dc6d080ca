{{/* What is to run, found out from the values in one place. */}}

{{/* Deployment, CronJob or Job. A file for the peer's chart that only a CronJob can mean need not say so. */}}
{{- define "rehome.kind" -}}
{{- if .Values.kind -}}
{{- .Values.kind -}}
{{- else if include "rehome.cronJobKeys" . -}}
CronJob
{{- else -}}
Deployment
{{- end -}}
{{- end }}

{{/* The keys that are set and that only a CronJob has, with commas between them. */}}
{{- define "rehome.cronJobKeys" -}}
{{- $set := list -}}
{{- range list "schedule" "suspend" "timeZone" "startingDeadlineSeconds" "successfulJobsHistoryLimit" "failedJobsHistoryLimit" -}}
{{- if not (kindIs "invalid" (index $.Values .)) -}}
{{- $set = append $set . -}}
{{- end -}}
{{- end -}}
{{- range list "cronJobAnnotations" "cronJobLabels" -}}
{{- if index $.Values . -}}
{{- $set = append $set . -}}
{{- end -}}
{{- end -}}
{{- join ", " $set -}}
{{- end }}

{{/* "true" where the bus is outside of the process. */}}
{{- define "rehome.external" -}}
{{- if or .Values.nats.enabled .Values.nats.url -}}true{{- end -}}
{{- end }}

{{/* The parts that are Deployments, in this order. */}}
{{- define "rehome.parts" -}}
{{- $parts := list -}}
{{- if eq (include "rehome.kind" .) "Deployment" -}}
{{- if eq .Values.mode "distributed" -}}
{{- $parts = list "watcher" "actuator" "functions" -}}
{{- if or .Values.dispatcher.enabled .Values.knative.enabled -}}
{{- $parts = append $parts "dispatcher" -}}
{{- end -}}
{{- else -}}
{{- $parts = list "all" -}}
{{- end -}}
{{- end -}}
{{- toJson $parts -}}
{{- end }}

{{/* The parts that helm test asks: those of which there always is a pod. KEDA may leave no functions. */}}
{{- define "rehome.tested" -}}
{{- $parts := include "rehome.parts" . | fromJsonArray -}}
{{- if and .Values.keda.enabled (eq (int .Values.keda.minReplicas) 0) -}}{{- $parts = without $parts "functions" -}}{{- end -}}
{{- toJson $parts -}}
{{- end }}

{{/* The parts that talk to the API server: a list of their names. */}}
{{- define "rehome.rightful" -}}
{{- if and (eq (include "rehome.kind" .) "Deployment") (eq .Values.mode "distributed") -}}
["watcher","actuator"]
{{- else -}}
["all"]
{{- end -}}
{{- end }}

{{/* How many milliseconds a Go duration has: a list of the name of the value and the value. */}}
{{- define "rehome.milliseconds" -}}
{{- $name := index . 0 -}}
{{- $text := toString (index . 1) -}}
{{- if not (regexMatch "^([0-9]+([.][0-9]+)?(ms|s|m|h))+$" $text) -}}
{{- fail (printf "%s: want a duration such as 90s, 15m or 1h30m, got %q" $name $text) -}}
{{- end -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" $text -1 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- $sum = addf $sum (mulf (trimSuffix $unit . | float64) (index $units $unit)) -}}
{{- end -}}
{{- $sum | int64 -}}
{{- end }}

{{- define "rehome.port" -}}
{{- with .Values.ports -}}
{{- (first .).containerPort -}}
{{- else -}}
{{- (include "rehome.flags" . | fromJson).port | default 8642 -}}
{{- end -}}
{{- end }}

{{- define "rehome.scheme" -}}
{{- ternary "HTTP" "HTTPS" (eq (include "rehome.tls" .) "off") -}}
{{- end }}

{{/* off, self-signed or files. */}}
{{- define "rehome.tls" -}}
{{- if and (eq .Values.metrics.tls "off") (include "rehome.flags" . | fromJson).tls -}}
files
{{- else -}}
{{- .Values.metrics.tls -}}
{{- end -}}
{{- end }}

{{- define "rehome.priorityOf" -}}
{{- with .Values.priorityClassName -}}
priorityClassName: {{ . }}
{{- end -}}
{{- end }}
