// Post a request body to a running `ibidem proxy`, and send the body that it returns to your provider.
//
//	go run compact_client.go FORMAT CONVERSATION < body.json
package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// compact returns the rewritten body, or the original if there is no valid response in time.
func compact(body []byte, url, format, conversation string, patience time.Duration) []byte {
	request, err := http.NewRequest("POST", strings.TrimRight(url, "/")+"/ibidem/v1/compact", bytes.NewReader(body))
	if err != nil {
		return body
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Ibidem-Format", format)
	request.Header.Set("X-Ibidem-Conversation", conversation)
	request.Header.Set("X-Ibidem-Token", os.Getenv("IBIDEM_TOKEN"))
	answer, err := (&http.Client{Timeout: patience}).Do(request)
	if err != nil {
		return body // no proxy is running, or the timeout expired
	}
	defer answer.Body.Close()
	found, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 || answer.Header.Get("X-Ibidem-Outcome") == "" {
		return body
	}
	return found
}

func main() {
	url, patience := os.Getenv("IBIDEM_URL"), 300*time.Millisecond
	if url == "" {
		url = "http://127.0.0.1:8123"
	}
	if given, err := time.ParseDuration(os.Getenv("IBIDEM_PATIENCE_MS") + "ms"); err == nil {
		patience = given
	}
	body, _ := io.ReadAll(os.Stdin)
	os.Stdout.Write(compact(body, url, os.Args[1], os.Args[2], patience))
}
