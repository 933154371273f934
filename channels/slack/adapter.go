package slack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	slackgo "github.com/slack-go/slack"

	"github.com/clawbot/clawbot/agent"
)

// Name is the name of this channel.
const Name agent.ChannelName = "slack"

// Adapter is the channel "slack". Make one with [New].
type Adapter struct {
	cfg    Config
	log    *slog.Logger
	api    *slackgo.Client
	pace   *pacer
	people *directory
	stored *recent // messages that are in the database: most come twice
	unsure *recent // posts whose outcome is not known
	sent   *recent // posts that went out, with their refs
	told   *recent // people who have been told why they get no answer
	files  *recent // approvals whose whole arguments are in their thread

	blocks atomic.Int64 // makes block ids that were not used before

	mu     sync.RWMutex
	self   identity
	now    *run // nil while Run does not run
	health health
}

var _ agent.Channel = (*Adapter)(nil)

// identity is who the bot is, by every name that Slack has for it.
type identity struct {
	workspace  string // team id, or the enterprise id of an organisation's installation
	enterprise bool   // installed for the whole organisation
	userID     string
	userName   string
	botID      string
	appID      string // known after the first hello; "" until then
}

// run is what exists while Run runs.
type run struct {
	in     agent.Inlet
	ctx    context.Context // for jobs; ends a while after Run was told to end
	lanes  *workers
	clicks *workers
}

// How much work may wait, and how long jobs have when Run ends.
const (
	laneCount  = 32
	laneDepth  = 256
	clickers   = 16
	clickDepth = 256
	grace      = 5 * time.Second
	ackFlush   = 100 * time.Millisecond
)

// New checks the settings and makes an adapter. It does not use the network.
func New(cfg Config) (*Adapter, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	a := &Adapter{
		cfg:    cfg,
		log:    cfg.Log.With("channel", string(Name)),
		pace:   newPacer(cfg.Now),
		stored: newRecent(1024),
		unsure: newRecent(1024),
		sent:   newRecent(1024),
		told:   newRecent(1024),
		files:  newRecent(1024),
	}
	a.blocks.Store(cfg.Now().UnixMilli())
	// No OptionRetry: a retry after a lost answer posts a message twice.
	a.api = slackgo.New(cfg.Secrets.BotToken, slackgo.OptionAPIURL(cfg.APIURL), slackgo.OptionHTTPClient(cfg.HTTP))
	a.people = newDirectory(a.api, cfg.Now)
	return a, nil
}

// Name returns "slack".
func (a *Adapter) Name() agent.ChannelName { return Name }

// Run finds out who the bot is, then receives until ctx ends. Messages that are
// being stored by then are still stored and acknowledged. It returns an error
// only for what waiting cannot mend, such as a revoked token.
func (a *Adapter) Run(ctx context.Context, in agent.Inlet) error {
	if err := a.identify(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		a.setProblem("auth", err.Error())
		return err
	}
	jobs, cancelJobs := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelJobs()
	r := &run{in: in, ctx: jobs, lanes: newWorkers(laneCount, 1, laneDepth), clicks: newWorkers(1, clickers, clickDepth)}
	a.setRun(r)

	sockets, closeSockets := context.WithCancel(jobs)
	defer closeSockets()
	failed := make(chan error, a.cfg.Connections)
	var wg sync.WaitGroup
	if a.cfg.Secrets.AppToken != "" {
		for i := range a.cfg.Connections {
			wg.Go(func() {
				if err := a.runSocket(sockets, r, i); err != nil {
					failed <- err
				}
			})
		}
	}

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		a.setProblem("socket", err.Error())
		if a.cfg.Secrets.SigningSecret != "" {
			// The HTTP endpoints still work.
			a.log.Error("Socket Mode ended", "err", err)
			<-ctx.Done()
			err = nil
		}
	}
	a.setRun(nil)
	timer := time.AfterFunc(grace, cancelJobs)
	defer timer.Stop()
	r.lanes.close()
	r.clicks.close()
	if a.cfg.Secrets.AppToken != "" {
		// slack-go does not say when a queued acknowledgement has been written.
		// One that is lost means a repeat, which the key of the message absorbs.
		time.Sleep(ackFlush)
	}
	closeSockets()
	wg.Wait()
	return err
}

func (a *Adapter) setRun(r *run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now = r
}

func (a *Adapter) running() *run {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.now
}

func (a *Adapter) me() identity {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.self
}

// identify asks Slack who we are, for as long as the network is in the way.
func (a *Adapter) identify(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		res, err := a.api.AuthTestContext(ctx)
		if err == nil && (res.TeamID == "" && res.EnterpriseID == "" || res.UserID == "") {
			err = errors.New("the answer names no workspace") // slack-go takes {} for success
		}
		if err == nil {
			id := identity{workspace: res.TeamID, userID: res.UserID, userName: res.User, botID: res.BotID}
			if res.EnterpriseID != "" && (res.TeamID == "" || res.TeamID == res.EnterpriseID) {
				id.workspace, id.enterprise = res.EnterpriseID, true
			}
			a.mu.Lock()
			a.self = id
			a.mu.Unlock()
			a.people.setHome(id)
			a.setProblem("auth", "")
			a.checkScopes(grantedScopes(res.Header))
			a.log.Info("signed in", "workspace", id.workspace, "bot", id.userID)
			return nil
		}
		if why, ok := hopeless(err); ok {
			return fmt.Errorf("sign in to Slack: %s", why)
		}
		a.setProblem("auth", "Slack cannot be reached")
		a.log.Warn("cannot sign in, trying again", "err", err, "attempt", attempt+1)
		if err := sleep(ctx, backoff(attempt)); err != nil {
			return err
		}
	}
}

func (a *Adapter) checkScopes(granted []string) {
	if missing := missingScopes(granted); len(missing) > 0 {
		text := "the bot token lacks " + strings.Join(missing, ", ") + ": update the app with the manifest and install it again"
		a.setProblem("scopes", text)
		a.log.Warn(text)
		return
	}
	a.setProblem("scopes", "")
}

// backoff is how long to wait before another attempt: from half a second to a
// minute, with jitter, so that replicas do not come back at the same moment.
func backoff(attempt int) time.Duration {
	d := min(500*time.Millisecond<<min(attempt, 10), time.Minute)
	return d/2 + rand.N(d)
}

// sleep waits, unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// guard keeps a panic in a handler from ending the process.
func (a *Adapter) guard(what string) {
	if p := recover(); p != nil {
		a.log.Error("panic", "in", what, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}
