package etcdlock

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pawl-lock/pawl/driver"
)

// Open connects to a cluster and makes a driver that owns the connection: Close ends it. The URL is
//
//	etcd://[user:password@]host[:port][,host[:port]…][/prefix]
//	etcds://…[?ca=file][&cert=file&key=file]     the same over TLS
//
// with port 2379 if none is named. A prefix stands before every name, with a slash behind it: with /locks the name "a" is
// the lock that other clients call "locks/a". Options.Prefix comes behind it. ca replaces the system's authorities; cert and
// key are the client's certificate.
//
// Open asks the cluster for one read that needs the quorum, and fails if there is none, if the login is wrong or if the user
// may not read the keys. ctx bounds Open only; without an end it is 10 s. No error shows the password.
func Open(ctx context.Context, rawURL string, opts *Options) (*Driver, error) {
	cfg, prefix, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	where := strings.Join(cfg.Endpoints, ", ")
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	life, end := context.WithCancel(context.Background())
	cfg.Context = life
	stop := context.AfterFunc(ctx, end)
	var client *clientv3.Client
	if err = probe(ctx, cfg); err == nil {
		client, err = clientv3.New(cfg)
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("etcd at %s: %w", where, openError(ctx, err))
	}
	o := Options{}
	if opts != nil {
		o = *opts
	}
	o.Prefix = prefix + o.Prefix
	d := New(client, &o)
	d.own = true
	if d.bad == nil {
		err = d.reach(ctx)
	} else {
		err = d.bad
	}
	if !stop() || err != nil {
		d.Close()
		end()
		return nil, fmt.Errorf("etcd at %s: %w", where, openError(ctx, err))
	}
	context.AfterFunc(d.life, end)
	return d, nil
}

const openLimit = 10 * time.Second

func openError(ctx context.Context, err error) error {
	switch text := err.Error(); {
	case ctx.Err() != nil && strings.Contains(text, context.DeadlineExceeded.Error()):
		return fmt.Errorf("no answer in time: is the address right, and has the cluster its quorum? %w", context.Cause(ctx))
	case ctx.Err() != nil && strings.Contains(text, context.Canceled.Error()):
		return context.Cause(ctx)
	case strings.HasPrefix(text, "etcd: "), strings.HasPrefix(text, "etcdlock: "):
		return err
	}
	return translate(ctx, err)
}

// probe asks whether there is an etcd at all. The client itself would try again until ctx ends, and not say why.
func probe(ctx context.Context, cfg clientv3.Config) error {
	cfg.Username, cfg.Password = "", "" // whoever it is need not be told
	client, err := clientv3.New(cfg)
	if err != nil {
		return err
	}
	defer client.Close()
	for end := time.Now().Add(time.Second); ; {
		_, err := pb.NewKVClient(client.ActiveConnection()).Range(ctx, &pb.RangeRequest{Key: []byte(marks), Serializable: true, CountOnly: true})
		if st, ok := status.FromError(err); !ok || st.Code() != codes.Unavailable && st.Code() != codes.Unimplemented && ctx.Err() == nil {
			return nil // whatever it says, it says it as etcd does
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return translate(ctx, err)
		}
		t := time.NewTimer(100 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// reach makes one read that needs the quorum.
func (d *Driver) reach(ctx context.Context) error {
	ctx, stop := d.bound(ctx, openLimit)
	defer stop()
	from := d.opts.Prefix + marks
	return d.ask(ctx, 2*time.Second, nil, []op{read(&pb.RangeRequest{Key: []byte(from), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(from)), CountOnly: true})}, nil).err
}

// parseURL reads a URL. Its errors do not repeat it.
func parseURL(raw string) (clientv3.Config, string, error) {
	cfg := clientv3.Config{
		Logger:               zap.NewNop(), // what goes wrong is in the errors
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		DialTimeout:          openLimit,
		// A member that comes back is used again soon.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 3 * time.Second,
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}})},
	}
	u, err := url.Parse(raw)
	if err != nil {
		return cfg, "", invalid("this is no URL of an etcd cluster (is a special character of the password not percent-encoded?); write etcd://[user:password@]host[:port][,host[:port]…][/prefix]")
	}
	scheme := "http://"
	switch u.Scheme {
	case "etcd":
	case "etcds":
		scheme = "https://"
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	default:
		return cfg, "", invalid("etcdlock cannot open a URL of scheme %q; it knows etcd and etcds", u.Scheme)
	}
	if u.User != nil {
		cfg.Username = u.User.Username()
		cfg.Password, _ = u.User.Password()
		if cfg.Username == "" || cfg.Password == "" {
			return cfg, "", invalid("the URL names a user or a password but not both")
		}
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		h := &url.URL{Host: host}
		name, port := h.Hostname(), h.Port()
		if name == "" || strings.HasSuffix(host, ":") {
			return cfg, "", invalid("the URL has an empty host or port; write %s://host[:port][,host[:port]…][/prefix]", u.Scheme)
		}
		if port == "" {
			port = "2379"
		}
		cfg.Endpoints = append(cfg.Endpoints, scheme+net.JoinHostPort(name, port))
	}
	query := u.Query()
	files := map[string]string{}
	for _, f := range []string{"ca", "cert", "key"} {
		files[f] = query.Get(f)
		query.Del(f)
	}
	switch {
	case len(query) > 0 || u.Fragment != "":
		return cfg, "", invalid("the URL has parameters that etcdlock does not know; it knows ca, cert and key")
	case cfg.TLS == nil && files["ca"]+files["cert"]+files["key"] != "":
		return cfg, "", invalid("the URL names certificates, but not TLS: its scheme should be etcds")
	case (files["cert"] == "") != (files["key"] == ""):
		return cfg, "", invalid("the URL names only one of cert and key")
	}
	if cfg.TLS != nil {
		if err := certificates(cfg.TLS, files); err != nil {
			return cfg, "", err
		}
	}
	prefix := strings.TrimPrefix(u.Path, "/")
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	return cfg, prefix, nil
}

func certificates(c *tls.Config, files map[string]string) error {
	if f := files["ca"]; f != "" {
		pem, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("etcdlock: %w: ca: %w", driver.ErrInvalid, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return invalid("ca: the file %s has no certificate in PEM form", f)
		}
	}
	if files["cert"] != "" {
		pair, err := tls.LoadX509KeyPair(files["cert"], files["key"])
		if err != nil {
			return fmt.Errorf("etcdlock: %w: cert and key: %w", driver.ErrInvalid, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return nil
}
