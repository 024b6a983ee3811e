// Parses claim.toml, which defines a claim. The file is not trusted.
//
//   title = "Scales rounded down"
//   statement = "MXFP8 trains worse if scales are rounded down."
//   looks = 2                  # the second test, of fresh seeds
//
//   [source]
//   paper = "Recipes for Pre-training LLMs with MXFP8"
//   arxiv = "2506.08027"
//   section = "3"
//   published = "8B parameters, 15T tokens"
//   here = "0.3 M parameters, 140 steps"
//
//   [[cells]]                  # without any: experiment.toml
//   name = "learned"
//   experiment = "experiment.toml"
//   set = ["train.lr=0.01"]
//   stress = "gain_outliers"
//
//   [[cells]]
//   name = "student"
//   [cells.student]            # in place of an experiment
//   lr = 0.01
//
//   [[contrasts]]
//   name = "floor"
//   says = "Rounded down, the loss is higher."
//   measure = "gap"            # gap_change, interaction, divergence, ...
//   relation = "above"         # below, within
//   bound = 0
//   published_size = 0.1       # the alternative, in the unit of the measure
//   size_source = "ours: the source gives no size"
//   spread = 0.12              # over seeds, of earlier runs
//   arm = "floor"
//   reference = "rceil"
//   role = "claim"             # control, shown
#pragma once

#include <cstddef>
#include <string_view>

#include "isoloss/estimators/claim.h"

namespace isoloss::estimators {

inline constexpr size_t kMaxClaimBytes = size_t{64} << 10;
inline constexpr size_t kMaxCells = 16;
inline constexpr size_t kMaxContrasts = 16;
inline constexpr size_t kMaxArms = 8;

/// Parses claim.toml. Messages name it by `file`.
/// Errors   ConfigError for the first broken rule. The rules refuse wrong
///          syntax, an unknown key, a value out of range, a cell that does not
///          exist, and a student that takes too long or too much memory. They
///          refuse a control that sees less than the claim lets pass. If there
///          are controls, one must guard each contrast `within` a bound. A
///          claim without any control is read, but is never reproduced by
///          being `within` a bound. Whether arms exist depends on the
///          experiments.
Claim ParseClaim(std::string_view text, std::string_view file);

}  // namespace isoloss::estimators
