#!/bin/sh
# Posts an event (standard input) to Ibidem on this machine. `post.sh answer` prints the response, for events whose
# output the client reads as JSON; `post.sh tell` prints no output. If Ibidem is not running or curl is missing, the
# script prints no output and exits with 0, so the client works as without it. A hook of type "http" cannot do that: the
# client shows an error for each event without a server.
#
# IBIDEM_HOOKS_URL  address of Ibidem (default: http://127.0.0.1:8123); `off` (as under `ibidem wrap`): disabled
# IBIDEM_TOKEN      its token, if one is set

# Always read the whole event: the client may still be writing it, and would get an error (EPIPE).
trap 'cat >/dev/null 2>&1' EXIT

case "$IBIDEM_HOOKS_URL" in
off) exit 0 ;;
'') at=http://127.0.0.1:8123 ;;
*) at=${IBIDEM_HOOKS_URL%/} ;;
esac

# -q ignores the user's curl settings. --url and -g prevent curl from reading an address as an option or a pattern.
get() {
    curl -q -s -g --proto =http,https --noproxy '*' --connect-timeout 1 --max-time 4 "$@" 2>/dev/null
}

# The token is not on the command line, where other users could see it. An empty `expect:` avoids a wait before large bodies.
ask() {
    get -f -H @/dev/fd/3 --url "$@" 3<<END
content-type: application/json
expect:
${IBIDEM_TOKEN:+x-ibidem-token: $IBIDEM_TOKEN}
END
}

# If requests pass through an Ibidem proxy, it rewrites them with the whole conversation, so this script has no work.
case "$ANTHROPIC_BASE_URL" in
http://127.0.0.1:* | http://localhost:* | "http://[::1]:"*)
    base=${ANTHROPIC_BASE_URL#http://}
    base=${base%%/*}
    case "$base" in
    *[@?#\\]*) ;; # the host could be after these characters
    *)
        # Without the token, because another program may be listening. A proxy that requires the token says so.
        case "$(get --url "http://$base/ibidem/health")" in
        '{"status": "ok", "version": '* | 'this needs the token: send it as x-ibidem-token'*) exit 0 ;;
        esac
        ;;
    esac
    ;;
esac

if [ "$1" = answer ]; then
    ask "$at/ibidem/hooks/claude-code" --data-binary @-
else
    ask "$at/ibidem/hooks/claude-code" -o /dev/null --data-binary @-
fi
exit 0
