package etcdlock

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// A query is, field by field, the message that etcd's own packages would send.
func TestQuery(t *testing.T) {
	long := strings.Repeat("é", 4096)
	for _, key := range []string{"k", "a/b", "\x00\xff", long} {
		q := transaction([]cond{created(key, 0), created(key, 1<<62), changed(key, 300), valued(key, ""), valued(key, long), vacant(key)},
			[]op{put(key, "", 1), put(key, long, 1<<60), del(key)}, []op{get(key), glance(key)})
		var got pb.TxnRequest
		if err := proto.Unmarshal(q, &got); err != nil {
			t.Fatal(err)
		}
		create := func(rev int64) *pb.Compare_CreateRevision { return &pb.Compare_CreateRevision{CreateRevision: rev} }
		k := []byte(key)
		asPut := func(value string, lease int64) *pb.RequestOp {
			return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: k, Value: []byte(value), Lease: lease}}}
		}
		want := &pb.TxnRequest{
			Compare: []*pb.Compare{
				{Target: pb.Compare_CREATE, Key: k, TargetUnion: create(0)},
				{Target: pb.Compare_CREATE, Key: k, TargetUnion: create(1 << 62)},
				{Target: pb.Compare_MOD, Key: k, TargetUnion: &pb.Compare_ModRevision{ModRevision: 300}},
				{Target: pb.Compare_VALUE, Key: k, TargetUnion: &pb.Compare_Value{Value: []byte{}}},
				{Target: pb.Compare_VALUE, Key: k, TargetUnion: &pb.Compare_Value{Value: []byte(long)}},
				{Target: pb.Compare_CREATE, Key: []byte(key + "/0"), RangeEnd: []byte(key + "/g"), TargetUnion: create(0)},
			},
			Success: []*pb.RequestOp{asPut("", 1), asPut(long, 1<<60),
				{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: k}}}},
			Failure: []*pb.RequestOp{
				{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: k, KeysOnly: true}}},
				{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key + "/0"), RangeEnd: []byte(key + "/g"), Limit: 64,
					SortOrder: pb.RangeRequest_ASCEND, SortTarget: pb.RangeRequest_CREATE}}},
			},
		}
		if !proto.Equal(&got, want) {
			t.Errorf("the query is\n%v\nnot\n%v", &got, want)
		}
	}
}

// A reply has what the server's message says, and one that is cut short is an error.
func TestReply(t *testing.T) {
	whole, err := proto.Marshal(&pb.TxnResponse{
		Header:    &pb.ResponseHeader{ClusterId: 1<<64 - 2, MemberId: 3, Revision: 1 << 40, RaftTerm: 5},
		Succeeded: true,
		Responses: []*pb.ResponseOp{
			{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{Header: &pb.ResponseHeader{Revision: 9}}}},
			{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{More: true, Kvs: []*mvccpb.KeyValue{{Key: []byte("k"), ModRevision: 7}}}}},
			{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{}}},
			{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{Deleted: 1}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &reply{}
	// It may come in pieces.
	if err := (codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(whole[:5]), mem.SliceBuffer(whole[5:])}, r); err != nil {
		t.Fatal(err)
	}
	if r.cluster != 1<<64-2 || r.rev != 1<<40 || !r.succeeded || len(r.reads) != 4 {
		t.Errorf("the reply is %+v", r)
	}
	if r.reads[0] != nil || r.reads[3] != nil || !r.reads[1].GetMore() || r.modified(1) != 7 || r.modified(2) != 0 {
		t.Errorf("the reads are %v", r.reads)
	}
	if err := (&reply{}).decode(whole[:len(whole)-1]); err == nil {
		t.Error("a reply that was cut short is taken for whole")
	}
}

func FuzzReply(f *testing.F) {
	f.Add([]byte{0x0a, 0x02, 0x08, 0x01, 0x10, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, m := &reply{}, &pb.TxnResponse{}
		if proto.Unmarshal(b, m) == nil {
			if err := r.decode(b); err != nil {
				t.Fatalf("%v: %v", m, err)
			}
		} else {
			r.decode(b)
		}
	})
}
