package etcdlock

import (
	"context"
	"fmt"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Transactions are written here as they go over the wire, and only what a lock needs of an answer is read. With the
// messages of etcd's own packages, which are copied, encoded and decoded by reflection, a free lock takes 5 % longer or more.
type (
	cond  []byte // an encoded etcdserverpb.Compare
	op    []byte // an encoded etcdserverpb.RequestOp
	query []byte // an encoded etcdserverpb.TxnRequest
)

// The numbers of the fields.
const (
	compareTarget, compareKey, compareCreate, compareMod, compareValue, compareEnd = 2, 3, 5, 6, 7, 64
	opRange, opPut, opDelete                                                       = 1, 2, 3
	putKey, putValue, putLease                                                     = 1, 2, 3
	deleteKey                                                                      = 1
	queryCompare, querySuccess, queryFailure                                       = 1, 2, 3
	replyHeader, replySucceeded, replyResponses                                    = 1, 2, 3
	headerCluster, headerRevision                                                  = 1, 3
)

func appendText[T ~string | ~[]byte](b []byte, field protowire.Number, parts ...T) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(n))
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func appendNumber(b []byte, field protowire.Number, n int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(n))
}

// spare is room enough for the tags, lengths and numbers of one part.
const spare = 48

// created holds if a key was created at rev; 0: if it is not there.
func created(key string, rev int64) cond {
	b := appendNumber(make([]byte, 0, len(key)+spare), compareTarget, int64(pb.Compare_CREATE))
	return appendNumber(appendText(b, compareKey, key), compareCreate, rev)
}

// vacant holds if a name has no contender.
func vacant(base string) cond {
	b := appendNumber(make([]byte, 0, 2*len(base)+spare), compareTarget, int64(pb.Compare_CREATE))
	b = appendText(b, compareKey, base, firstEnd)
	return appendText(appendNumber(b, compareCreate, 0), compareEnd, base, lastEnd)
}

// changed holds if rev was the last revision to change a key.
func changed(key string, rev int64) cond {
	b := appendNumber(make([]byte, 0, len(key)+spare), compareTarget, int64(pb.Compare_MOD))
	return appendNumber(appendText(b, compareKey, key), compareMod, rev)
}

func valued(key, value string) cond {
	b := appendNumber(make([]byte, 0, len(key)+len(value)+spare), compareTarget, int64(pb.Compare_VALUE))
	return appendText(appendText(b, compareKey, key), compareValue, value)
}

func put(key, value string, lease int64) op {
	b := appendText(make([]byte, 0, len(key)+len(value)+spare), putKey, key)
	return part(opPut, appendNumber(appendText(b, putValue, value), putLease, lease))
}

func del(key string) op {
	return part(opDelete, appendText(make([]byte, 0, len(key)+spare), deleteKey, key))
}

func read(r *pb.RangeRequest) op {
	b, _ := proto.Marshal(r) // keys are bytes, which always marshal
	return part(opRange, b)
}

// part makes b the field of a message that has only this one.
func part(field protowire.Number, b []byte) []byte {
	return appendText(make([]byte, 0, len(b)+8), field, b)
}

// get reads all of a key but its value.
func get(key string) op { return read(&pb.RangeRequest{Key: []byte(key), KeysOnly: true}) }

// glance reads the contenders of a name. Few names have more than fit in the answer: see asks for the rest.
func glance(base string) op {
	return read(&pb.RangeRequest{Key: []byte(first(base)), RangeEnd: []byte(last(base)), Limit: 64,
		SortOrder: pb.RangeRequest_ASCEND, SortTarget: pb.RangeRequest_CREATE})
}

func transaction(conds []cond, then, otherwise []op) query {
	n := 0
	for _, c := range conds {
		n += len(c) + 8
	}
	for _, o := range then {
		n += len(o) + 8
	}
	for _, o := range otherwise {
		n += len(o) + 8
	}
	b := make([]byte, 0, n)
	for _, c := range conds {
		b = appendText(b, queryCompare, c)
	}
	for _, o := range then {
		b = appendText(b, querySuccess, o)
	}
	for _, o := range otherwise {
		b = appendText(b, queryFailure, o)
	}
	return b
}

// reply is what an etcdserverpb.TxnResponse says.
type reply struct {
	cluster   uint64
	rev       int64 // the store's
	succeeded bool
	reads     []*pb.RangeResponse // in order; nil for a part that was no read
}

func (r *reply) decode(b []byte) error {
	return fields(b, func(field protowire.Number, n uint64, b []byte) error {
		switch field {
		case replyHeader:
			return fields(b, func(field protowire.Number, n uint64, _ []byte) error {
				switch field {
				case headerCluster:
					r.cluster = n
				case headerRevision:
					r.rev = int64(n)
				}
				return nil
			})
		case replySucceeded:
			r.succeeded = n != 0
		case replyResponses:
			i := len(r.reads)
			r.reads = append(r.reads, nil)
			return fields(b, func(field protowire.Number, _ uint64, b []byte) error {
				if field != opRange {
					return nil
				}
				r.reads[i] = &pb.RangeResponse{}
				return proto.Unmarshal(b, r.reads[i])
			})
		}
		return nil
	})
}

// fields calls f for each field of an encoded message, with its number or its bytes.
func fields(b []byte, f func(field protowire.Number, n uint64, b []byte) error) error {
	for len(b) > 0 {
		field, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		var n uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			text, size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(field, kind, b)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if err := f(field, n, text); err != nil {
			return err
		}
	}
	return nil
}

// modified is the last change of the key that the i-th part of an answer has read, or 0.
func (r *reply) modified(i int) int64 {
	for _, kv := range r.reads[i].GetKvs() {
		return kv.ModRevision
	}
	return 0
}

// codec lets gRPC send a query and receive a reply.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	q, ok := v.(query)
	if !ok {
		return nil, fmt.Errorf("etcdlock: a %T is no transaction", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(q)}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*reply)
	if !ok {
		return fmt.Errorf("etcdlock: a %T is no answer to a transaction", v)
	}
	return r.decode(data.Materialize())
}

// asEncoded lets an answer be as long as it is, like etcd's client package.
var asEncoded = []grpc.CallOption{grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(math.MaxInt32)}

type answer = answerOf[*reply]

// ask sends one transaction that may arrive twice without harm.
func (d *Driver) ask(ctx context.Context, ttl time.Duration, conds []cond, then, otherwise []op) answer {
	q := transaction(conds, then, otherwise)
	return ask(ctx, d, ttl, func(ctx context.Context) (*reply, error) {
		r := &reply{}
		err := d.conn.Invoke(ctx, pb.KV_Txn_FullMethodName, q, r, asEncoded...)
		if err == nil {
			err = d.sameCluster(r.cluster)
		}
		if want := then; err == nil {
			if !r.succeeded {
				want = otherwise
			}
			if len(r.reads) != len(want) {
				err = fmt.Errorf("the answer has %d parts instead of %d", len(r.reads), len(want))
			}
		}
		return r, err
	})
}

// see makes a queue of the answer to glance, and asks for the whole if it was cut.
func (d *Driver) see(ctx context.Context, ttl time.Duration, base string, r *pb.RangeResponse) (*queue, error) {
	if r.GetMore() {
		a := d.ask(ctx, ttl, nil, []op{read(&pb.RangeRequest{Key: []byte(first(base)), RangeEnd: []byte(last(base))})}, nil)
		if a.err != nil {
			return nil, a.err
		}
		r = a.resp.reads[0]
	}
	return newQueue(contenders(base, r.GetKvs())), nil
}

// look reads the queue of a name.
func (d *Driver) look(ctx context.Context, ttl time.Duration, base string) (*queue, error) {
	a := d.ask(ctx, ttl, nil, []op{glance(base)}, nil)
	if a.err != nil {
		return nil, a.err
	}
	return d.see(ctx, ttl, base, a.resp.reads[0])
}
