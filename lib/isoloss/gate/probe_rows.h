// Walks the rows of probes for level L2. Each row is a tensor in a step of a
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
  /// These functions return the flips and the expected flips without
  /// repetitions. Elements of the same significand flip together and are one
  /// piece of evidence. A probe of layout 1 counts repetitions, too.
  int64_t Flips() const;
  double ExpectedFlips() const;
  /// Whether the tensor has fewer bits than FP32, so that roundings may flip.
  /// In FP32 tensors hardly an element is equal, so their errors are measured
  /// instead.
  bool IsRounded() const;
};

/// Whether `a` was computed before `b`. The first fault may cause the
/// remaining ones.
bool ComputedBefore(const ProbeRow& a, const ProbeRow& b);

/// Says for each place in /tensors whether it is the result of a product of a
/// linear layer, in the forward or the backward pass. Such a tensor is a sum
/// and nothing else.
std::vector<bool> AreProducts(const runlog::ProbeLog& log);

/// Whether a probe has columns of sides, rows and signs. Probes of layout 1
/// have only columns of counts and noise.
bool HasShape(const runlog::ProbeLog& log);

/// Whether a probe has the error of a tensor with what chance explains of
/// elements of unequal variances. Probes of layout 3 and later have.
bool HasTensorNoise(const runlog::ProbeLog& log);
/// Returns the note of a check about probes without such columns; "" if all
/// have them.
std::string WithoutShape(const Probes& probes);

}  // namespace isoloss::gate
