#!/bin/sh
# Hands an event (standard input) to the Ibidem that runs on this machine. `post.sh answer` prints what that says, for
# events whose output the client reads as JSON; `post.sh tell` prints nothing. Where nobody answers, or curl is missing,
# nothing is printed and nothing fails: the client goes on as without us. A hook of type "http" cannot do that: the
# client shows an error for each event that nobody takes.
#
# IBIDEM_HOOKS_URL  where it listens, http://127.0.0.1:8123 if not set; `off` (as under `ibidem wrap`): do nothing
# IBIDEM_TOKEN      its token, if it asks for one

# Whichever way this ends, the event is read to its end: who is still writing it would find nobody there.
trap 'cat >/dev/null 2>&1' EXIT

case "$IBIDEM_HOOKS_URL" in
off) exit 0 ;;
'') at=http://127.0.0.1:8123 ;;
*) at=${IBIDEM_HOOKS_URL%/} ;;
esac

# An address is an address, whatever it begins with, and the user's own settings of curl are for other things.
get() {
    curl -q -s -g --proto =http,https --noproxy '*' --connect-timeout 1 --max-time 4 "$@" 2>/dev/null
}

# The token stands in no command line, which others can see. Without `expect:` curl would wait before it sends much.
ask() {
    get -f -H @/dev/fd/3 --url "$@" 3<<END
content-type: application/json
expect:
${IBIDEM_TOKEN:+x-ibidem-token: $IBIDEM_TOKEN}
END
}

# Requests that go through an Ibidem proxy are rewritten there, which sees all of them: then there is nothing to do here.
case "$ANTHROPIC_BASE_URL" in
http://127.0.0.1:* | http://localhost:* | "http://[::1]:"*)
    base=${ANTHROPIC_BASE_URL#http://}
    base=${base%%/*}
    case "$base" in
    *[@?#\\]*) ;; # behind these may stand another host
    *)
        # Without the token: whoever listens there may be somebody else. One that wants it says so.
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
