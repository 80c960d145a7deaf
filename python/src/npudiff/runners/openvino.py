"""exec:openvino: Intel's OpenVINO, on the CPU of this machine.

Options: device=cpu (default) or another one that OpenVINO finds here; precision=f32 (default: what is not quantised is
computed in float32), f16 or bf16."""
import openvino

from npudiff.runner import Runner, RunnerError, main


class OpenVino(Runner):
    name, version = "openvino", "1"
    versions = {"openvino": openvino.__version__}
    options = ("device", "precision")

    def load(self, job):
        core = openvino.Core()
        device = job.options.get("device", "cpu").upper()
        if device not in core.available_devices:
            raise RunnerError(f"there is no device {device}; OpenVINO finds {', '.join(core.available_devices)}")
        model = core.read_model(job.model)
        properties = {"INFERENCE_PRECISION_HINT": job.options.get("precision", "f32"),
                      "PERFORMANCE_HINT": "LATENCY"}
        if device == "CPU":
            properties["INFERENCE_NUM_THREADS"] = job.threads
        self.request = core.compile_model(model, device, properties).create_infer_request()
        found = {name: port for port in self.request.model_outputs for name in port.get_names()}
        for tensor in job.outputs:
            if tensor.name not in found:
                self.missing[tensor.name] = "OpenVINO's model has no such output"
        self.ports = {t.name: found[t.name] for t in job.outputs if t.name in found}

    def run(self, inputs):
        self.request.infer(inputs)
        return {name: self.request.get_tensor(port).data for name, port in self.ports.items()}


if __name__ == "__main__":
    main(OpenVino)
