// Names mistakes that layouts make: sums over ranks, and shards.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/layouts/difference.h"
#include "isoloss/layouts/recording.h"

namespace isoloss::layouts {

struct Mistake {
  std::string name = {};      ///< "all_reduce_missing"; "": none is known
  std::string sentence = {};  ///< without full stop
  std::string where = {};     ///< "columns 64..127 of 128 = rank 1 of tp"
};

/// A tensor might have these values by a mistake.
struct Candidate {
  std::string name;
  std::string sentence;
  Matrix<float> values;
};

/// A number of ranks, as a mesh or the number of ranks gives it.
struct RankCount {
  size_t count = 1;
  std::string name = {};  ///< "tp", or "ranks"
};
/// Returns all counts from 2 on by which shards or sums may be split.
std::vector<RankCount> RankCountsOf(const Recording& recording,
                                    size_t micro_batches);

struct Evidence {
  MatrixView<const float> expected;
  MatrixView<const float> found;
  double bound = 0.0;  ///< a relative difference of this size needs no reason
  const std::vector<RankCount>& counts;
  std::vector<Candidate> candidates = {};
};

/// Returns the mistake that gives the found values, or only where they are
/// wrong.
Mistake NameMistake(const Evidence& evidence);

/// Returns the number of shards if the difference is a factor of each row and
/// shard, as of a norm computed by shards; 0 if it is not.
size_t ShardsWithFactors(MatrixView<const float> a, MatrixView<const float> b,
                         const std::vector<RankCount>& counts);

}  // namespace isoloss::layouts
