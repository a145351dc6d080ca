{{/* The policy as a map, as JSON: the body that was given or that of the chart, and what is laid over it. */}}
{{- define "rehome.policy" -}}
{{- $version := .Values.deschedulerPolicyAPIVersion -}}
{{- $policy := dict -}}
{{- if .Values.deschedulerPolicy -}}
{{- $policy = tpl (toYaml .Values.deschedulerPolicy) . | fromYaml -}}
{{- if $policy.Error -}}{{- fail (printf "deschedulerPolicy: it is no YAML any more after tpl: %s" $policy.Error) -}}{{- end -}}
{{- $body := ternary "strategies" "profiles" (eq $version "descheduler/v1alpha1") -}}
{{- if and (hasPrefix "descheduler/" $version) (not (hasKey $policy $body)) -}}
{{- fail (printf "deschedulerPolicy: want %s in a policy of %s, got none; nothing would be moved, and the chart lays no policy of its own under it" $body $version) -}}
{{- end -}}
{{- else -}}
{{- $policy = .Files.Get "files/policy.yaml" | fromYaml -}}
{{- $version = $policy.apiVersion -}}
{{- end -}}
{{- $over := tpl (toYaml .Values.policyAdditions) . | fromYaml -}}
{{- if .Values.knative.enabled -}}
{{- $asked := $over.functions | default $policy.functions | default list -}}
{{- range .Values.knative.strategies -}}
{{- $url := printf "http://%s.%s.svc.%s" (include "rehome.knativeName" (list $ .)) (include "rehome.namespace" $) $.Values.knative.clusterDomain -}}
{{- $asked = append $asked (dict "name" . "http" (dict "url" $url "timeout" $.Values.knative.timeout)) -}}
{{- end -}}
{{- $_ := set $over "functions" $asked -}}
{{- end -}}
{{- if $over -}}
{{- if eq $version "descheduler/v1alpha1" -}}
{{- fail "policyAdditions and knative: want deschedulerPolicyAPIVersion descheduler/v1alpha2 or rehome.dev/v1alpha1, got descheduler/v1alpha1; rehome policy convert writes the policy in a newer version" -}}
{{- end -}}
{{- $version = "rehome.dev/v1alpha1" -}}
{{- range $key, $value := $over -}}
{{- $_ := set $policy $key $value -}}
{{- end -}}
{{- end -}}
{{- $_ := set $policy "apiVersion" $version -}}
{{- $_ := set $policy "kind" "DeschedulerPolicy" -}}
{{- toJson $policy -}}
{{- end }}

{{- define "rehome.knativeName" -}}
{{- printf "%s-%s" (include "rehome.fullname" (index . 0)) (index . 1 | lower) | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{/* Every strategy of the program. */}}
{{- define "rehome.strategies" -}}
["RemovePodsViolatingNodeTaints","RemovePodsHavingTooManyRestarts","PodLifeTime","RemoveFailedPods","RemoveDuplicates","RemovePodsViolatingInterPodAntiAffinity","RemovePodsViolatingNodeAffinity","RemovePodsViolatingTopologySpreadConstraint","LowNodeUtilization","HighNodeUtilization","Request","Maintenance"]
{{- end }}

{{/* Those that the functions of the mode distributed answer. None: all. */}}
{{- define "rehome.answered" -}}
{{- $names := .Values.functions.strategies -}}
{{- if .Values.knative.enabled -}}
{{- $left := list -}}
{{- range $names | default (include "rehome.strategies" . | fromJsonArray) -}}
{{- if not (has . $.Values.knative.strategies) -}}{{- $left = append $left . -}}{{- end -}}
{{- end -}}
{{- $names = $left -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}
