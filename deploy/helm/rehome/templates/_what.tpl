{{/* What to run, derived from the values. */}}

{{/* Deployment, CronJob, or Job. Values of the descheduler chart that only a CronJob has select CronJob. */}}
{{- define "rehome.kind" -}}
{{- if .Values.kind -}}
{{- .Values.kind -}}
{{- else if include "rehome.cronJobKeys" . -}}
CronJob
{{- else -}}
Deployment
{{- end -}}
{{- end }}

{{/* The CronJob keys that are set, separated by commas. */}}
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

{{/* "true" if the bus is outside of the process. */}}
{{- define "rehome.external" -}}
{{- if or .Values.nats.enabled .Values.nats.url -}}true{{- end -}}
{{- end }}

{{/* "true" in a dry run, by the value or the descheduler flag. */}}
{{- define "rehome.dryRun" -}}
{{- if or .Values.dryRun (eq ((include "rehome.flags" . | fromJson).env.REHOME_DRY_RUN | default "false") "true") -}}true{{- end -}}
{{- end }}

{{/* The number of pods of a part: a list of root and component. A dry run has no lease, so it has no standby. */}}
{{- define "rehome.replicas" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $replicas := ternary $root.Values.replicas (index $root.Values $part | default dict).replicas (eq $part "all") | int -}}
{{- if and (include "rehome.dryRun" $root) (has $part (list "all" "watcher" "actuator" "maintenance")) -}}{{- $replicas = min $replicas 1 -}}{{- end -}}
{{- $replicas -}}
{{- end }}

{{/* The parts that are Deployments, in order. */}}
{{- define "rehome.parts" -}}
{{- $parts := list -}}
{{- if eq (include "rehome.kind" .) "Deployment" -}}
{{- if eq .Values.mode "distributed" -}}
{{- $parts = list "watcher" "actuator" -}}
{{- if .Values.maintenance.enabled -}}{{- $parts = append $parts "maintenance" -}}{{- end -}}
{{- $parts = append $parts "functions" -}}
{{- if or .Values.dispatcher.enabled .Values.knative.enabled -}}
{{- $parts = append $parts "dispatcher" -}}
{{- end -}}
{{- if .Values.requests.enabled -}}{{- $parts = append $parts "api" -}}{{- end -}}
{{- else -}}
{{- $parts = list "all" -}}
{{- end -}}
{{- end -}}
{{- toJson $parts -}}
{{- end }}

{{/* The parts for helm test, which always have a pod. KEDA can scale functions to zero. */}}
{{- define "rehome.tested" -}}
{{- $parts := include "rehome.parts" . | fromJsonArray -}}
{{- if and .Values.keda.enabled (eq (int .Values.keda.minReplicas) 0) -}}{{- $parts = without $parts "functions" -}}{{- end -}}
{{- toJson $parts -}}
{{- end }}

{{/* The names of the parts that use the API server. */}}
{{- define "rehome.rightful" -}}
{{- if and (eq (include "rehome.kind" .) "Deployment") (eq .Values.mode "distributed") -}}
{{- toJson (concat (list "watcher" "actuator") (ternary (list "maintenance") list .Values.maintenance.enabled) (ternary (list "api") list .Values.requests.enabled)) -}}
{{- else -}}
["all"]
{{- end -}}
{{- end }}

{{/* The features that are on and their parts, as a JSON map from the name of a file in files/rbac to a list of components. */}}
{{- define "rehome.rights" -}}
{{- $policy := include "rehome.policy" . | fromJson -}}
{{- $runs := eq (include "rehome.kind" .) "Deployment" -}}
{{- $apart := eq .Values.mode "distributed" -}}
{{- $watcher := list (ternary "watcher" "all" $apart) -}}
{{- $actuator := list (ternary "actuator" "all" $apart) -}}
{{- $maintains := and $runs .Values.maintenance.enabled -}}
{{- $rights := dict "watcher" $watcher "actuator" $actuator -}}
{{- if $maintains -}}{{- $_ := set $rights "maintenance" (list (ternary "maintenance" "all" $apart)) -}}{{- end -}}
{{- if or (hasKey $policy "restart") (and $maintains (ne (toString ($policy.maintenance | default dict).restart) "false")) -}}
{{- $_ := set $rights "restart" $actuator -}}
{{- end -}}
{{- if hasKey $policy "evictionRequests" -}}{{- $_ := set $rights "eviction-requests" $actuator -}}{{- end -}}
{{- if .Values.metrics.auth -}}
{{- $_ := set $rights "requests" (include "rehome.rightful" . | fromJsonArray) -}}
{{- else if .Values.requests.enabled -}}
{{- $_ := set $rights "requests" (list (ternary "api" "all" $apart)) -}}
{{- end -}}
{{- if and $apart $runs .Values.requests.enabled -}}{{- $_ := set $rights "api" (list "api") -}}{{- end -}}
{{- $measures := ($policy.metricsCollector | default dict).enabled -}}
{{- range $policy.metricsProviders -}}
{{- if eq .source "KubernetesMetrics" -}}{{- $measures = true -}}{{- end -}}
{{- end -}}
{{- if $measures -}}
{{- $_ := set $rights "metrics-api" (concat $watcher (ternary (list "api") list (and $apart $runs .Values.requests.enabled))) -}}
{{- end -}}
{{- if and $apart .Values.setup.enabled -}}{{- $_ := set $rights "setup" (list "setup") -}}{{- end -}}
{{- toJson $rights -}}
{{- end }}

{{/* A Go duration in milliseconds: a list of the name of the value and the value. */}}
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

{{/* The resources of a part: a list of root and component. */}}
{{- define "rehome.resources" -}}
{{- $root := index . 0 -}}
{{- $own := (index $root.Values (index . 1) | default dict).resources | default dict -}}
{{- toYaml (mergeOverwrite (deepCopy $root.Values.resources) (deepCopy $own)) -}}
{{- end }}

{{/* The memory limit of some resources in bytes. 0: none, or an unusual notation. */}}
{{- define "rehome.memoryLimit" -}}
{{- include "rehome.bytes" (.limits | default dict).memory -}}
{{- end }}

{{/* A quantity in bytes. 0: none, or an unusual notation. */}}
{{- define "rehome.bytes" -}}
{{- $text := ternary (. | int64 | toString) (toString .) (kindIs "float64" .) -}}
{{- if regexMatch "^[0-9]+([.][0-9]+)?([kMGT]|[KMGT]i)?$" $text -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mulf (trimSuffix $unit $text | float64) (index $units $unit) | int64 -}}
{{- else -}}
0
{{- end -}}
{{- end }}

{{/* GOMEMLIMIT for some resources: nine tenths of the limit of memory. Near it Go clears up more often, before the kernel ends the
process; the rest is for what is not Go's, such as what the bus reads of its files. Empty without a limit. */}}
{{- define "rehome.goMemLimit" -}}
{{- $mebibytes := div (include "rehome.memoryLimit" . | int64 | mul 9) (mul 10 1048576) -}}
{{- if gt $mebibytes 0 -}}{{- printf "%dMiB" $mebibytes -}}{{- end -}}
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
