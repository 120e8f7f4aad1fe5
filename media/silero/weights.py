"""Writes weights.bin and testdata/probabilities.txt from the package silero-vad of PyPI (tried with 6.2.3):

    pip install onnx onnxruntime numpy
    pip download --no-deps silero-vad && unzip silero_vad-*.whl
    python weights.py silero_vad/data/silero_vad_openvino_16k.onnx

weights.bin has the tensors in the order of NAMES, as 32-bit little-endian floats.
"""
import sys
import numpy as np
import onnx
import onnxruntime

NAMES = ["stft.forward_basis_buffer"] + \
    [f"encoder.{i}.reparam_conv.{kind}" for i in range(4) for kind in ("weight", "bias")] + \
    [f"decoder.rnn.{name}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")] + \
    ["decoder.decoder.2.weight", "decoder.decoder.2.bias"]

model = sys.argv[1]
tensors = {}
for node in onnx.load(model).graph.node:
    if node.op_type == "Constant" and node.attribute[0].HasField("t"):
        tensors[node.output[0].split("__")[-1]] = onnx.numpy_helper.to_array(node.attribute[0].t)
with open("weights.bin", "wb") as out:
    for name in NAMES:
        out.write(tensors[name].astype("<f4").tobytes())

session = onnxruntime.InferenceSession(model)
pcm = np.fromfile("testdata/speech.pcm", "<i2").astype(np.float32) / 32768
state = np.zeros((2, 1, 128), np.float32)
context = np.zeros(64, np.float32)
with open("testdata/probabilities.txt", "w") as out:
    for i in range(0, len(pcm) - 511, 512):
        chunk = np.concatenate([context, pcm[i:i + 512]])
        probability, state = session.run(None, {"input": chunk[None], "state": state})
        context = chunk[-64:]
        print(f"{probability.item():.7f}", file=out)
