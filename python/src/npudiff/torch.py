"""A chip inside PyTorch: forward is the bits of an NPU, backward passes straight through. Needs the package torch."""
import collections.abc
import hashlib
import os

import torch

from npudiff._twin import Twin

__all__ = ["Simulated", "simulate"]


class _Straight(torch.autograd.Function):
    """The values of `bits`, and the gradient of `values`."""

    @staticmethod
    def forward(ctx, values, bits):
        return bits.to(values.dtype).clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def _array(tensor):
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()


def _digest(module):
    """Of the values of all parameters and buffers."""
    digest = hashlib.blake2b()
    for tensor in (*module.parameters(), *module.buffers()):
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    return digest.digest()


class Simulated(torch.nn.Module):
    """What `simulate` makes. `twin` is the npudiff.Twin that computes (None before the first forward, where `model` is a
    function); `module` is the module whose gradient is used."""

    def __init__(self, model, chip, module=None, *, strict=False, threads=0, dims=None):
        super().__init__()
        is_function = callable(model) and not isinstance(model, os.PathLike)
        if is_function and module is None:
            raise ValueError("a function that exports needs the module that it exports")
        self.module, self.chip = module, chip
        self._export, self._exported = model if is_function else None, None
        self._options = {"strict": strict, "threads": threads, "dims": dims}
        self.twin = None if is_function else Twin(model, chip, **self._options)

    def extra_repr(self):
        return f"chip={self.chip!r}"

    def _refresh(self):
        """Exports what has changed since it was exported last."""
        state = _digest(self.module) if self._export else None
        if state != self._exported:
            with torch.no_grad():
                self.twin = Twin(self._export(self.module), self.chip, **self._options)
            self._exported = state

    def _inputs(self, inputs, named):
        names = list(self.twin.inputs)
        if len(inputs) + len(named) != len(names) or not set(named) <= set(names[len(inputs):]):
            raise ValueError(f"the model has inputs {names}; {len(inputs)} came by place, and {list(named)} by name")
        return {**dict(zip(names, inputs)), **named}

    def forward(self, *inputs, **named):
        self._refresh()
        fed = self._inputs(inputs, named)
        made = self.twin.run({name: _array(tensor) for name, tensor in fed.items()})
        device = next((tensor.device for tensor in fed.values()), torch.device("cpu"))
        bits = [torch.from_numpy(made[name]).to(device) for name in self.twin.outputs]
        if self.module is None or not torch.is_grad_enabled():
            return bits[0] if len(bits) == 1 else tuple(bits)
        values = self.module(*inputs, **named)
        if isinstance(values, collections.abc.Mapping):
            return type(values)({name: _joined(name, values[name], one) for name, one in zip(self.twin.outputs, bits)})
        is_one = isinstance(values, torch.Tensor)
        several = [values] if is_one else list(values)
        if len(several) != len(bits):
            raise ValueError(f"the module gives {len(several)} outputs, and the model has {list(self.twin.outputs)}")
        joined = [_joined(*row) for row in zip(self.twin.outputs, several, bits)]
        return joined[0] if is_one else tuple(joined)


def _joined(name, values, bits):
    if values.shape != bits.shape:
        raise ValueError(f"output '{name}' is {tuple(bits.shape)} on the chip, and {tuple(values.shape)} of the module")
    return _Straight.apply(values, bits)


def simulate(model, chip, module=None, *, strict=False, threads=0, dims=None):
    """A torch.nn.Module whose outputs are the bits that `chip` gives, and whose gradient is that of `module`.

        net = npudiff.torch.simulate("model.qdq.onnx", "gen1")             # evaluates: the chip's outputs
        net = npudiff.torch.simulate("model.qdq.onnx", "gen1", float_net)  # and has a gradient
        net = npudiff.torch.simulate(export, "gen1", float_net)            # and learns: export(float_net) writes the file
        loss = torch.nn.functional.cross_entropy(net(images), labels)      # on what the chip will say
        loss.backward()                                                    # as if the chip were float_net

    model   path of the QDQ export (ONNX) of `module`, or a function of the module that writes one and gives its path. The
            function is called before a forward if a parameter or a buffer of the module has changed since: after each
            step of an optimiser. A path is read once: what is learnt then does not come into the outputs.
    chip    as of npudiff.Twin: "gen1" to "gen5", "SM8650@qairt-2.48".
    module  the float model, or one with fake quantisers (of torch.ao, of AIMET), which stands nearer to the chip; with the
            inputs and outputs of `model`, in the same order. It runs only where a gradient is wanted; its values are
            thrown away. None: outputs have no gradient.
    strict, threads, dims   as of npudiff.Twin.

    The straight-through estimator (Bengio, Leonard and Courville 2013, arXiv:1308.3432): forward is not differentiable,
    so backward takes the gradient at the outputs for that of the outputs of `module`. It is not the gradient of the
    chip's steps, of which there is none but 0.

    inputs   tensors by place or by name, [n, ...] as npudiff.Twin.run takes them, on any device; floats become float32.
    outputs  a tensor, or a tuple in the order of the model where it has several (a dict where `module` gives one), on the
             device of the first input; of the type of `module`'s where there is a gradient, else of the model's.
             float32 outputs have the chip's bits.

    The module's parameters are those of the result (`net.parameters()`). `net.twin.marks` says what is not known. The
    chip is computed on the CPU, by all its cores.
    Errors: as of npudiff.Twin; ValueError where module and model do not fit. One thread at a time."""
    return Simulated(model, chip, module, strict=strict, threads=threads, dims=dims)
