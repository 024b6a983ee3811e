"""Tokens of each expert in one step, and what they must add up to."""

import itertools
import types

import torch

from . import shards


class Loads:
    """Counts what routers choose. `slots` is the number of experts of each
    token as it is configured, which counts more than what routers tell."""

    def __init__(self, slots=None):
        self._slots = slots
        self._layers = {}

    def count(self, layer, place, dropped, values):
        """One call of a router: its place in the order of computation, pairs of
        token and slot that a capacity dropped, and what it told."""
        ids = shards.local(values["expert_ids"].detach())
        experts = next(values[key].shape[-1] for key in ("logits", "scores", "bias")
                       if values.get(key) is not None)
        slots = self._slots or values.get("top_k")
        if slots is None and ids.dim() > 1:
            slots = ids.shape[-1]
        found = self._layers.get(layer)
        if found is None:
            # What is no expert falls into the first count or the last.
            found = self._layers[layer] = types.SimpleNamespace(
                place=place, dropped=0, slots=set(),
                counts=torch.zeros(experts + 2, dtype=torch.int64, device=ids.device),
                one=torch.ones(1, dtype=torch.int64, device=ids.device))
        found.place = min(found.place, place)
        # Unlike bincount, it waits for no GPU.
        places = ids.reshape(-1).to(torch.int64).clamp(-1, len(found.counts) - 2) + 1
        found.counts.scatter_add_(0, places, found.one.expand(len(places)))
        found.dropped += dropped
        found.slots.add(slots)

    def finish(self, tokens, routed, batch):
        """Parts of a row, whose layers are in the order of computation, and a
        text that says which loads do not add up; None: they do."""
        layers = dict(sorted(self._layers.items(), key=lambda item: item[1].place))
        # A GPU is waited for once.
        told = [layer.counts for layer in layers.values()]
        every = iter(torch.cat([each.to(told[0].device) for each in told]).tolist() if told else ())
        counts = {name: list(itertools.islice(every, len(layer.counts)))[1:-1]
                  for name, layer in layers.items()}
        pairs = {name: sum(counts[name]) + layer.dropped for name, layer in layers.items()}
        slots = {name: next(iter(layer.slots)) for name, layer in layers.items()
                 if len(layer.slots) == 1 and None not in layer.slots}

        def wrong(of_each):
            return [name for name in slots if pairs[name] != slots[name] * of_each]

        if routed is None:
            given = [] if batch is None else [batch] if isinstance(batch, torch.Tensor) else batch
            sizes = sorted({x.numel() for x in given if not x.is_floating_point()})
            routed = next((size for size in (tokens, *sizes) if not wrong(size)), tokens)
        row = {"experts": counts, "slots": [slots.get(name) for name in layers],
               "dropped": [layer.dropped for layer in layers.values()],
               "routed": int(routed) if layers else None}
        for name in wrong(routed)[:1]:
            return row, (
                f"the loads of router {name} add up to {pairs[name]}, but {routed} tokens with "
                f"{slots[name]} slots each have {slots[name] * routed}. Observe each token once, "
                "and each use of a shared router under a name of its own. Pass routed= to step() if "
                "routers see more tokens than there are labels, and dropped= to observe() if a "
                "capacity drops some.")
        return row, None
