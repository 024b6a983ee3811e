"""GPUs that multiply for `python -m isoloss sick`."""

import subprocess
import time

import torch

from . import adders

_QUERIES = (("temperature.gpu", "temperature_c"), ("power.draw", "power_w"),
            ("ecc.errors.corrected.volatile.total", "ecc_corrected"),
            ("ecc.errors.uncorrected.volatile.total", "ecc_uncorrected"))


# PyTorch or another process is at fault for errors of this kind.
_NO_FAULT_OF_CARD = ("no kernel image", "out of memory", "busy or unavailable")


class CardError(Exception):
    """A card that is not there, or does not compute what is asked for."""


class CardFailure(Exception):
    """A card that reports an error."""


def first_line(error):
    return str(error).strip().split("\n")[0]


class Card:
    """A CUDA device of PyTorch."""

    clock = staticmethod(time.monotonic)

    def __init__(self, name):
        """Errors: CardError; CardFailure."""
        # A ROCm build calls AMD's GPUs CUDA devices, too, and their versions compute capabilities.
        if torch.version.cuda is None or not torch.cuda.is_available():
            raise CardError(
                f"PyTorch {torch.__version__} sees no CUDA GPU. Run it on a machine with an NVIDIA GPU, "
                "its driver and a CUDA build of PyTorch; `nvidia-smi` must name the GPU.")
        try:
            self.device = torch.device(name)
        except RuntimeError:
            self.device = torch.device("cpu")
        count = torch.cuda.device_count()
        if self.device.type != "cuda" or (self.device.index or 0) >= count:
            raise CardError(f"--device {name}: is no GPU of this machine. Pass one of cuda:0 to "
                            f"cuda:{count - 1}.")
        # Sums that cuBLAS rounds to BF16 on their way would be no adder's.
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        try:
            self._properties = torch.cuda.get_device_properties(self.device)
            self._one = torch.ones((), device=self.device)
        except RuntimeError as error:
            reason = f"--device {name}: {first_line(error)}"
            if any(text in reason for text in _NO_FAULT_OF_CARD):
                raise CardError(f"{reason}. End what else runs on the GPU, or install a PyTorch that "
                                "is built for it.") from error
            raise CardFailure(reason) from error
        self.name = self._properties.name
        self.capability = (self._properties.major, self._properties.minor)

    def place(self, tensor):
        return tensor.to(self.device)

    def multiply(self, adder, left, right, output):
        """[M, N] in `output` of codes [M, K] and [N, K].
        Errors: RuntimeError or TypeError where PyTorch offers no such product."""
        if adder.format is adders.BF16:
            left, right = left.view(torch.bfloat16), right.view(torch.bfloat16).t()
            if output is torch.bfloat16:
                return torch.mm(left, right)
            return torch.mm(left, right, out_dtype=output)
        if not hasattr(torch, "float8_e4m3fn"):
            raise TypeError(f"PyTorch {torch.__version__} has no FP8")
        result = torch._scaled_mm(left.view(torch.float8_e4m3fn), right.view(torch.float8_e4m3fn).t(),
                                  scale_a=self._one, scale_b=self._one, out_dtype=output,
                                  use_fast_accum=adder.promote is None)
        # PyTorch before 2.5 returns the largest magnitude, too.
        return result[0] if isinstance(result, tuple) else result

    def synchronize(self):
        torch.cuda.synchronize(self.device)

    def sensors(self):
        """What nvidia-smi tells of the card, as far as it is there and knows."""
        uuid = getattr(self._properties, "uuid", None)
        if uuid is None:
            return {}
        command = ["nvidia-smi", "--query-gpu=" + ",".join(query for query, _ in _QUERIES),
                   "--format=csv,noheader,nounits", "-i", f"GPU-{str(uuid).removeprefix('GPU-')}"]
        try:
            found = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
            values = found.stdout.strip().split(",")
            return {name: float(value) for (_, name), value in zip(_QUERIES, values)
                    if value.strip().replace(".", "").isdigit()}
        except (OSError, subprocess.SubprocessError, ValueError):
            return {}
