// Makes runs that are as right as an arm's own and differ from them in bits.
// Their spread tells which differences between two builds mean nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "isoloss/train/run_hooks.h"

namespace isoloss::ensembles {

/// Variants i and i + kBenignFamilies belong to one family.
inline constexpr size_t kBenignFamilies = 6;

struct BenignVariant {
  std::string name;  ///< "benign_split_k_7"
  std::string what;  ///< what it does otherwise, in one sentence
  train::Seams seams;
};

/// Returns the index-th of endlessly many variants, for a run with `seed`.
/// Families take turns: they sum products in other ways, or change last bits of
/// the initial weights. The change of a family depends on the index. From its
/// second member on, the last bits of the initial weights differ, too.
BenignVariant MakeBenignVariant(size_t index, uint64_t seed);

}  // namespace isoloss::ensembles
