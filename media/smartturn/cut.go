package smartturn

import (
	"encoding/binary"
	"errors"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	wholeFrames, melFrames    = 800, 200 // length of the input in frames of 10 ms: in the file, and after shortenModel
	wholePositions, positions = wholeFrames / 2, melFrames / 2
	positionSize              = 384 // floats in the embedding of a position
)

// Fields and types of ONNX messages (onnx.proto).
const (
	modelGraph = 7

	graphInitializer, graphInput, graphValueInfo = 5, 11, 13

	tensorDims, tensorType, tensorName, tensorRawData = 1, 2, 8, 9
	typeFloat, typeInt64                              = 1, 7

	valueType, typeTensor, tensorShape, shapeDim, dimValue = 2, 1, 2, 1, 1
)

var errModel = errors.New("not the ONNX file of smart-turn v3 for CPUs")

// shortenModel shortens the model's input from 8 s to the last 2 s. It changes the input's length, the number of
// positions, and the table of their embeddings. It drops the shapes of intermediate values, which would be wrong now
// and are optional.
func shortenModel(model []byte) ([]byte, error) {
	var c cutter
	c.replaceField(&model, modelGraph, func(graph []byte) []byte {
		c.replaceField(&graph, graphInitializer, c.shortenTensor)
		c.replaceField(&graph, graphValueInfo, func([]byte) []byte { return nil })
		c.replaceField(&graph, graphInput, func(input []byte) []byte {
			c.shortenInput(&input, valueType, typeTensor, tensorShape, shapeDim)
			return input
		})
		return graph
	})
	if c.isBroken || c.embeddings != 1 || c.counts != 1 || c.inputs != 1 {
		return nil, errModel
	}
	return model, nil
}

// cutter makes the changes to the model's file. It counts them, so that shortenModel can check that each was made once.
type cutter struct {
	embeddings, counts, inputs int
	isBroken                   bool // the file is not a protobuf message
}

// replaceField replaces each value of the message's field by the result of change. A value for which change returns nil
// is dropped.
func (c *cutter) replaceField(message *[]byte, field protowire.Number, change func(value []byte) []byte) {
	var out []byte
	for rest := *message; len(rest) > 0; {
		number, kind, n := protowire.ConsumeField(rest)
		if n < 0 {
			c.isBroken = true
			return
		}
		whole := rest[:n]
		rest = rest[n:]
		if number != field || kind != protowire.BytesType {
			out = append(out, whole...)
			continue
		}
		_, _, tag := protowire.ConsumeTag(whole)
		value, _ := protowire.ConsumeBytes(whole[tag:])
		if value = change(value); value != nil {
			out = protowire.AppendBytes(protowire.AppendTag(out, field, protowire.BytesType), value)
		}
	}
	*message = out
}

// shortenInput follows path to the dimensions of the input, and changes the dimension that is the input's length.
func (c *cutter) shortenInput(message *[]byte, field protowire.Number, path ...protowire.Number) {
	c.replaceField(message, field, func(value []byte) []byte {
		if len(path) > 0 {
			c.shortenInput(&value, path[0], path[1:]...)
			return value
		}
		if !slices.Equal(value, appendNumberField(nil, dimValue, wholeFrames)) {
			return value
		}
		c.inputs++
		return appendNumberField(nil, dimValue, melFrames)
	})
}

func appendNumberField(b []byte, field protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), value)
}

// shortenTensor cuts the tensor if it is the table of embeddings or the number of positions. It returns any other
// tensor as it is.
func (c *cutter) shortenTensor(tensor []byte) []byte {
	var dims []uint64
	var kind uint64
	var name, data []byte
	for rest := tensor; len(rest) > 0; {
		number, wire, n := protowire.ConsumeTag(rest)
		if n < 0 {
			c.isBroken = true
			return tensor
		}
		value := rest[n:]
		if n = protowire.ConsumeFieldValue(number, wire, value); n < 0 {
			c.isBroken = true
			return tensor
		}
		rest = value[n:]
		integer, _ := protowire.ConsumeVarint(value)
		switch {
		case number == tensorDims && wire == protowire.VarintType:
			dims = append(dims, integer)
		case number == tensorType && wire == protowire.VarintType:
			kind = integer
		case number == tensorName && wire == protowire.BytesType:
			name, _ = protowire.ConsumeBytes(value)
		case number == tensorRawData && wire == protowire.BytesType:
			data, _ = protowire.ConsumeBytes(value)
		}
	}
	const row = 4 * positionSize // bytes
	switch {
	case kind == typeFloat && slices.Equal(dims, []uint64{wholePositions, positionSize}) && len(data) == wholePositions*row:
		c.embeddings++
		return encodeTensor(kind, name, data[len(data)-positions*row:], positions, positionSize)
	case kind == typeInt64 && slices.Equal(dims, []uint64{1}) && len(data) == 8 && binary.LittleEndian.Uint64(data) == wholePositions:
		c.counts++
		return encodeTensor(kind, name, binary.LittleEndian.AppendUint64(nil, positions), 1)
	}
	return tensor
}

func encodeTensor(kind uint64, name, data []byte, dims ...uint64) (b []byte) {
	for _, d := range dims {
		b = appendNumberField(b, tensorDims, d)
	}
	b = appendNumberField(b, tensorType, kind)
	b = protowire.AppendBytes(protowire.AppendTag(b, tensorName, protowire.BytesType), name)
	return protowire.AppendBytes(protowire.AppendTag(b, tensorRawData, protowire.BytesType), data)
}
