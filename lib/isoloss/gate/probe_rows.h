// Walks the rows of probes for level L2: each row is a tensor of a step of a
// case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/gate/evidence.h"

namespace isoloss::gate {

using Probes = std::vector<const Probe*>;

struct ProbeRow {
  const Probe* probe;
  size_t row;

  const runlog::OracleColumns& oracle() const { return probe->log.oracle; }
  const std::string& Tensor() const;
  const std::string& Case() const;
  /// Returns "TENSOR in case CASE, step STEP of FILE".
  std::string Place() const;
  /// Flips, and those expected, without repeated ones: elements of the same
  /// significand flip together and are one piece of evidence. Of layout 1 all.
  int64_t Flips() const;
  double ExpectedFlips() const;
  /// Says whether the tensor has fewer bits than FP32, so that roundings may
  /// flip. In FP32 tensors hardly an element is equal: their errors are
  /// measured.
  bool IsRounded() const;
};

/// The order of computation: what is wrong first may be why the rest is.
bool ComputedBefore(const ProbeRow& a, const ProbeRow& b);

/// By place in /tensors: is it the result of a product of a linear layer, of
/// the forward or the backward pass? Such a tensor is a sum and nothing else.
std::vector<bool> AreProducts(const runlog::ProbeLog& log);

/// Probes of layout 1 have columns of counts and noise only, not those of
/// sides, rows and signs.
bool HasShape(const runlog::ProbeLog& log);
/// What a check of the latter says of those that lack them; "" if none does.
std::string WithoutShape(const Probes& probes);

}  // namespace isoloss::gate
