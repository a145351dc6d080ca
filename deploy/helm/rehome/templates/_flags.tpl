{{/*
The flags of the descheduler. As JSON: env, the settings that they mean; ignored, what is left out without harm, each with the reason; port
and tls, what is served where. A flag that cannot be left out, and one that is not known, stops rendering.
*/}}
{{- define "rehome.flags" -}}
{{- $env := dict -}}
{{- $ignored := list -}}
{{- $port := 0 -}}
{{- $tls := false -}}
{{- range $flag, $value := .Values.cmdOptions -}}
{{- $text := ternary "true" (toString $value) (kindIs "invalid" $value) -}}
{{- if kindIs "float64" $value -}}{{- $text = $value | int64 | toString -}}{{- end -}}
{{- if eq $flag "dry-run" -}}
{{- $_ := set $env "REHOME_DRY_RUN" $text -}}
{{- else if eq $flag "v" -}}
{{- $_ := set $env "REHOME_LOG_LEVEL" (ternary "DEBUG" "INFO" (gt (int $text) 3)) -}}
{{- else if eq $flag "logging-format" -}}
{{- $_ := set $env "REHOME_LOG_FORMAT" $text -}}
{{- else if eq $flag "descheduling-interval" -}}
{{- $_ := set $env "REHOME_RESYNC" $text -}}
{{- else if or (eq $flag "client-connection-kubeconfig") (eq $flag "kubeconfig") -}}
{{- $_ := set $env "REHOME_KUBECONFIG" $text -}}
{{- else if eq $flag "enable-http2" -}}
{{- $_ := set $env "REHOME_HTTP2" $text -}}
{{- else if eq $flag "leader-elect-lease-duration" -}}
{{- $_ := set $env "REHOME_LEASE_DURATION" $text -}}
{{- else if eq $flag "leader-elect-resource-namespace" -}}
{{- $_ := set $env "REHOME_LEASE_NAMESPACE" $text -}}
{{- else if eq $flag "secure-port" -}}
{{- $port = int $text -}}
{{- if lt $port 1 -}}{{- fail (printf "cmdOptions.secure-port: want a port from 1 to 65535, since the probes ask there, got %s" $text) -}}{{- end -}}
{{- else if eq $flag "tls-cert-file" -}}
{{- $_ := set $env "REHOME_HTTP_CERT_FILE" $text -}}
{{- $tls = true -}}
{{- else if eq $flag "tls-private-key-file" -}}
{{- $_ := set $env "REHOME_HTTP_KEY_FILE" $text -}}
{{- else if eq $flag "bind-address" -}}
{{- if not (has $text (list "0.0.0.0" "::")) -}}
{{- fail (printf "cmdOptions.bind-address: want 0.0.0.0 or ::, since the probes ask at the pod's address, got %q; use networkPolicy to keep others away" $text) -}}
{{- end -}}
{{- $ignored = append $ignored "cmdOptions.bind-address: all addresses of the pod are served" -}}
{{- else if has $flag (list "client-connection-qps" "client-connection-burst") -}}
{{- $ignored = append $ignored (printf "cmdOptions.%s: how fast pods move is said by rate in policyAdditions" $flag) -}}
{{- else if eq $flag "disable-metrics" -}}
{{- $ignored = append $ignored "cmdOptions.disable-metrics: the same port answers the probes; use networkPolicy to keep others away" -}}
{{- else if has $flag (list "leader-elect" "leader-elect-renew-deadline" "leader-elect-retry-period" "leader-elect-resource-lock" "leader-elect-resource-name") -}}
{{- $ignored = append $ignored (printf "cmdOptions.%s: there is always a leader, by Leases of fixed names; all follows from leaderElection.leaseDuration" $flag) -}}
{{- else if has $flag (list "disable-http2-serving" "http2-max-streams-per-connection" "permit-port-sharing" "permit-address-sharing") -}}
{{- $ignored = append $ignored (printf "cmdOptions.%s: HTTP/2 is off unless metrics.http2 is on, and no port is shared" $flag) -}}
{{- else if or (has $flag (list "vmodule" "alsologtostderr" "logtostderr" "stderrthreshold" "add-dir-header" "skip-headers")) (hasPrefix "log-" $flag) -}}
{{- $ignored = append $ignored (printf "cmdOptions.%s: the log goes to standard error; see logging" $flag) -}}
{{- else if eq $flag "feature-gates" -}}
{{- range splitList "," $text -}}
{{- if not (has (splitList "=" . | first | trim) (list "EvictionsInBackground" "AllAlpha" "AllBeta")) -}}
{{- fail (printf "cmdOptions.feature-gates: want no gate but EvictionsInBackground, AllAlpha and AllBeta, got %q; remove it" .) -}}
{{- end -}}
{{- end -}}
{{- $ignored = append $ignored "cmdOptions.feature-gates: evictions in the background need no switch" -}}
{{- else if eq $flag "policy-config-file" -}}
{{- fail (printf "cmdOptions.policy-config-file: want the policy in deschedulerPolicy, which the chart mounts, got %q" $text) -}}
{{- else if hasPrefix "otel-" $flag -}}
{{- fail (printf "cmdOptions.%s: want the standard variables of OpenTelemetry in extraEnv, such as OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318, since traces go over HTTP and not over gRPC" $flag) -}}
{{- else if has $flag (list "cert-dir" "tls-min-version" "tls-cipher-suites" "tls-sni-cert-key") -}}
{{- fail (printf "cmdOptions.%s: there is no such setting; want metrics.tls self-signed, or files with metrics.tlsSecret, which means TLS 1.2 or newer" $flag) -}}
{{- else -}}
{{- fail (printf "cmdOptions.%s: it is not a flag that the chart knows; remove it, and say what you want of it by the keys of values.yaml or a variable in extraEnv" $flag) -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "env" $env "ignored" $ignored "port" $port "tls" $tls) -}}
{{- end }}
