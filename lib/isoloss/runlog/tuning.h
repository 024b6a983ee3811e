// Tells what is known of a run's learning rate: the sweep in [tuning] of its
// experiment, and the configuration that this sweep was of.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// Returns whether a "section.key" of an experiment is part of what two runs
/// must have in common to be compared. It covers model, data without paths (the
/// corpus digest stands for them), train without seeds (each run has its own),
/// and evaluations. It covers the keys of [parallel] and [routing] on which all
/// runs' bits depend. It leaves out the name, the gate, the sweep of learning
/// rates, further log keys, how to execute a run, and the arms' recipes and
/// exchanges.
bool IsOfConfig(std::string_view key);

/// Returns the digest of all that a sweep of learning rates depends on: the
/// keys of IsOfConfig without train.lr and evaluations, the corpus, and the
/// recipe of the swept arm unless that is bf16. A key that is added to
/// experiments later must be left out while it has its default, so that sweeps
/// made before still fit.
std::string TuningDigest(const std::string& experiment_text,
                         const std::string& corpus_digest,
                         const std::string& arm);

/// A sweep has so many seeds of each rate or more: one seed shows chance along
/// with the rate.
inline constexpr size_t kLeastSweepSeeds = 2;

/// Returns whether rates ascend from above 0, and each has a loss.
bool IsSweep(std::span<const double> rates, std::span<const double> held_out);

/// Holds a sweep of learning rates.
struct RateSweep {
  std::vector<double> rates = {};     ///< ascending
  std::vector<double> held_out = {};  ///< nats, mean over seeds; inf: diverged
  size_t seeds = 0;                   ///< of each rate
  std::string configuration = {};     ///< TuningDigest of its runs
};

/// Returns the sweep that the run's experiment_text has; empty if it has none
/// that can be read.
std::optional<RateSweep> SweepOf(const Provenance& provenance);

/// Returns train.lr of the run's experiment_text; empty if it has none.
std::optional<double> RateOf(const Provenance& provenance);

}  // namespace isoloss::runlog
