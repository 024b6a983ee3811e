#include "isoloss/operations/rank_points.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace isoloss::operations {
namespace {

/// Holds sums over two tensors with equally many elements.
struct Moments {
  double here = 0.0;
  double there = 0.0;
  double both = 0.0;
};

Moments MomentsOf(const Floats& here, const Floats& there, bool centred) {
  const auto count = static_cast<double>(here.values.size());
  double mean_here = 0.0;
  double mean_there = 0.0;
  for (size_t i = 0; centred && i < here.values.size(); ++i) {
    mean_here += static_cast<double>(here.values[i]) / count;
    mean_there += static_cast<double>(there.values[i]) / count;
  }
  Moments moments;
  for (size_t i = 0; i < here.values.size(); ++i) {
    const double a = static_cast<double>(here.values[i]) - mean_here;
    const double b = static_cast<double>(there.values[i]) - mean_there;
    moments.here += a * a;
    moments.there += b * b;
    moments.both += a * b;
  }
  return moments;
}

/// Replicas that have parted are still alike. Shards of one parameter are
/// independent: the correlation of n of their elements has the standard
/// deviation 1 / sqrt(n), and six of these are never reached by chance.
bool HaveParted(const Floats& here, const Floats& there) {
  if (here.extent != there.extent || here.values == there.values) return false;
  constexpr double kAlike = 0.5;
  constexpr double kDeviations = 6.0;
  const Moments moments = MomentsOf(here, there, /*centred=*/true);
  const double scale = std::sqrt(moments.here * moments.there);
  const double least = std::max(
      kAlike, kDeviations / std::sqrt(static_cast<double>(here.values.size())));
  return scale > 0.0 && moments.both > least * scale;
}

/// Counts rows of groups that hold anything; padding is zero.
int64_t RowsWithValues(const Operation& operation) {
  const Floats& x = *operation.Find("x");
  const Integers* ends = operation.FindIntegers("group_ends");
  const size_t rows =
      ends == nullptr || ends->values.empty()
          ? 0
          : std::min(x.extent[0], static_cast<size_t>(ends->values.back()));
  int64_t count = 0;
  for (size_t i = 0; i < rows; ++i) {
    const auto begin =
        x.values.begin() + static_cast<ptrdiff_t>(i * x.extent[1]);
    count += std::any_of(begin, begin + static_cast<ptrdiff_t>(x.extent[1]),
                         [](float value) { return value != 0.0f; })
                 ? 1
                 : 0;
  }
  return count;
}

/// Rows of experts over the ranks that files have, and what routers chose for
/// them.
struct Load {
  size_t file = 0;  ///< the first one that has the layer
  int64_t rows = 0;
  int64_t chosen = 0;
  bool has_router = false;
  bool is_split = false;  ///< other ranks have other experts of the layer
};

class RankPoints {
 public:
  explicit RankPoints(const std::vector<OperationFile>& files)
      : files_(files) {}

  std::vector<OpenPoint> Find() {
    for (size_t f = 0; f < files_.size(); ++f) {
      AddReplicas(f);
      AddLoads(f);
      Ranks& ranks = ranks_[files_[f].step];
      if (ranks.given.empty()) ranks.first_file = f;
      ranks.given.insert(files_[f].rank);
      ranks.all = std::max(ranks.all, files_[f].ranks);
    }
    for (const auto& [step, ranks] : ranks_) AddMissing(step, ranks);
    for (const auto& [place, load] : loads_) {
      const auto& [step, module] = place;
      if (!load.has_router) continue;
      if (load.is_split && !HasAllRanks(step)) {
        points_.push_back({load.file, module,
                           "rows of experts were not counted, since files of "
                           "other ranks, which have other experts, are missing",
                           true});
      } else if (load.rows != load.chosen) {
        points_.push_back(
            {load.file, module,
             fmt::format(
                 "the experts of all ranks together have {} rows that are "
                 "not zero, but routers chose {}: tokens were dropped or "
                 "count twice. If a capacity drops them, the router's "
                 "attribute `dropped` must say how many",
                 load.rows, load.chosen),
             true});
      }
    }
    return std::move(points_);
  }

 private:
  /// Ranks of one step.
  struct Ranks {
    size_t first_file = 0;
    std::set<int64_t> given = {};
    int64_t all = 1;
  };

  void AddReplicas(size_t file) {
    for (const Operation& operation : files_[file].operations) {
      const Floats* before = operation.Find("parameter_before");
      if (before == nullptr) continue;
      const auto [place, is_new] = parameters_.try_emplace(
          {files_[file].step, operation.module}, file, before);
      const auto& [other, there] = place->second;
      if (is_new || other == file || !HaveParted(*before, *there)) continue;
      points_.push_back(
          {file, operation.module,
           fmt::format(
               "ranks {} and {} have parameters that are alike, but not "
               "equal: replicas have parted before this step",
               files_[other].rank, files_[file].rank),
           true});
    }
  }

  bool HasAllRanks(int64_t step) const {
    const Ranks& ranks = ranks_.at(step);
    return static_cast<int64_t>(ranks.given.size()) >= ranks.all;
  }
  /// Nobody looks at what the other ranks wrote.
  void AddMissing(int64_t step, const Ranks& ranks) {
    if (HasAllRanks(step)) return;
    points_.push_back(
        {ranks.first_file, "",
         fmt::format("files of {} of {} ranks are given: what the other ranks "
                     "recorded was not judged",
                     ranks.given.size(), ranks.all),
         false});
  }

  /// A router chooses for all experts after it, up to the next router. Ranks
  /// that share tokens have one router between them.
  void AddLoads(size_t file) {
    const Operation* router = nullptr;
    for (const Operation& operation : files_[file].operations) {
      if (operation.type == "router") router = &operation;
      if (operation.type != "grouped_linear") continue;
      const auto [place, is_new] =
          loads_.try_emplace({files_[file].step, operation.module});
      Load& load = place->second;
      if (is_new) load.file = file;
      load.rows += RowsWithValues(operation);
      const auto here =
          static_cast<double>(operation.Find("weight")->extent[0]);
      load.is_split |= operation.Number("experts", here) != here;
      const Integers* ids =
          router == nullptr ? nullptr : router->FindIntegers("expert_ids");
      if (ids == nullptr) continue;
      load.has_router = true;
      load.is_split |=
          static_cast<double>(router->Find("scores")->extent[1]) != here;
      const auto slots = static_cast<double>(ids->values.size());
      const double dropped = router->Number("dropped", 0.0);
      const bool is_count = dropped >= 0.0 && dropped <= slots;
      load.chosen += static_cast<int64_t>(slots - (is_count ? dropped : 0.0));
    }
  }

  const std::vector<OperationFile>& files_;
  std::map<std::pair<int64_t, std::string>, std::pair<size_t, const Floats*>>
      parameters_;
  std::map<std::pair<int64_t, std::string>, Load> loads_;
  std::map<int64_t, Ranks> ranks_;
  std::vector<OpenPoint> points_;
};

}  // namespace

std::vector<OpenPoint> RankPointsOf(const std::vector<OperationFile>& files) {
  return RankPoints(files).Find();
}

std::string GradientDifference(const Floats& here, const Floats& there) {
  if (here.extent != there.extent) return "";
  const Moments moments = MomentsOf(here, there, /*centred=*/false);
  if (moments.here == 0.0 || moments.there == 0.0) return "";
  // A rounding to BF16 takes the sine of the angle to 2^-9 at most.
  constexpr double kParallel = 0x1p-16;
  const double sine2 =
      1.0 - moments.both * moments.both / (moments.here * moments.there);
  if (moments.both <= 0.0 || sine2 > kParallel) return "";
  return fmt::format(
      ". One is {:.4g} times the other, as if each group clipped by a norm of "
      "its own, or one averaged and the other added up",
      std::sqrt(moments.here / moments.there));
}

}  // namespace isoloss::operations
