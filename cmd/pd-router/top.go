package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pd-router/internal/config"
	"pd-router/internal/status"
)

// topPeriod is how often a terminal is drawn anew.
const topPeriod = time.Second

// maxSnapshot bounds what is read of an answer.
const maxSnapshot = 16 << 20

// newTopCommand is the status page in a terminal.
func newTopCommand() *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use: "top", Short: "Show what a running router does, live", Args: noWords,
		Long: `Show the line, the slots and the last requests of a running router: the page that it serves at /, in a terminal.

In a terminal the view is drawn anew each second, and q ends it. Elsewhere (a pipe, a file, TERM=dumb) it is printed once.`,
		Example: "  pd-router top --url http://10.0.0.1:23333",
	}
	cmd.Flags().StringVar(&address, "url", "http://127.0.0.1:23333", "URL of the router, without a path.")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		from, err := topURL(address)
		if err != nil {
			return err
		}
		client := &http.Client{Timeout: 5 * time.Second}
		defer client.CloseIdleConnections()
		if screen, ok := openScreen(cmd.OutOrStdout(), os.Stdin); ok {
			return watchTop(cmd.Context(), client, from, screen)
		}
		s, err := fetchTop(cmd.Context(), client, from)
		if err != nil {
			return fmt.Errorf("%w (--url says where the router is)", err)
		}
		_, err = io.WriteString(cmd.OutOrStdout(), strings.Join(topView(s, plainView), "\n")+"\n")
		return err
	}
	return cmd
}

// topURL is where the snapshot of the router at address is.
func topURL(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", &config.Error{Setting: "--url=" + address, Text: "want a URL such as http://127.0.0.1:23333"}
	}
	return u.JoinPath("queue").String(), nil
}

func fetchTop(ctx context.Context, client *http.Client, from string) (status.Snapshot, error) {
	var s status.Snapshot
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return s, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("%s answered %d: is it a pd-router?", from, resp.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxSnapshot)).Decode(&s); err != nil {
		return s, fmt.Errorf("%s: %w", from, err)
	}
	return s, nil
}

// watchTop draws until ctx ends or q is pressed. A router that does not answer is asked again.
func watchTop(ctx context.Context, client *http.Client, from string, screen *screen) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys := make(chan struct{}) // closed by the goroutine
	go func() {                 // ended by q or ctx, awaited below
		defer close(keys)
		screen.untilKey(ctx, 'q')
	}()
	defer func() {
		cancel()
		<-keys
		screen.close()
	}()
	ticker := time.NewTicker(topPeriod)
	defer ticker.Stop()
	var last status.Snapshot
	for {
		s, err := fetchTop(ctx, client, from)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			last = s
		}
		width, height := screen.size()
		lines := topView(last, view{width: width, height: height, colour: os.Getenv("NO_COLOR") == ""})
		if err != nil {
			lines = append([]string{clean("no answer, trying again: " + err.Error())}, lines...)
		}
		screen.draw(lines, width, height)
		select {
		case <-ticker.C:
		case <-keys:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}
