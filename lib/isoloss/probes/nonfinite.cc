#include "isoloss/probes/nonfinite.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <type_traits>
#include <vector>

#include "isoloss/expert_parallel/collectives.h"

namespace isoloss::probes {
namespace {

/// The exponent field is all ones.
bool IsNonFinite(float value) {
  return (std::bit_cast<uint32_t>(value) & 0x7f800000u) == 0x7f800000u;
}

int64_t CountIn(const float* row, size_t cols) {
  int32_t count = 0;
  for (size_t i = 0; i < cols; ++i) count += IsNonFinite(row[i]) ? 1 : 0;
  return count;
}

/// Processes send each other these facts on a tensor.
struct Part {
  int64_t count;
  int64_t elements;
  int64_t row;
  int64_t col;
};
static_assert(std::is_trivially_copyable_v<Part>);

}  // namespace

std::string NonFinite::Describe(size_t processes) const {
  return fmt::format(
      "{}: {} of {} elements are NaN or infinite, the first in row {}, column "
      "{}{}",
      name, count, elements, row, col,
      processes == 1 ? std::string()
                     : fmt::format(" of process {}'s part", process));
}

NonFiniteCounter::Count& NonFiniteCounter::CountOf(const std::string& name) {
  const size_t number =
      numbers_.try_emplace(name, counts_.size()).first->second;
  if (number == counts_.size()) counts_.push_back({.name = name});
  return counts_[number];
}

/// Returns how many rows come before the first that is not finite, in the order
/// of their places.
int64_t NonFiniteCounter::RowNumber(const Count& count) {
  size_t before = 0;
  for (const RowRun& run : count.runs) {
    RowPlace end = run.first;
    end.position += run.end - run.begin;
    if (end <= count.place) {
      before += run.end - run.begin;
    } else if (run.first <= count.place) {
      before += count.place.position - run.first.position;
    }
  }
  return static_cast<int64_t>(before);
}

void NonFiniteCounter::OnTensor(const model::Tensor& tensor) {
  Count& count = CountOf(tensor.Name());
  if (!tensor.rows.counts) return;
  const MatrixView<const float> values = tensor.values;
  const std::vector<RowRun> runs = RunsOf(tensor.rows, values.rows());
  count.runs.insert(count.runs.end(), runs.begin(), runs.end());
  struct Share {
    int64_t rows = 0;
    int64_t count = 0;
    size_t first_row = 0;
    RowPlace place;
  };
  std::vector<Share> shares(static_cast<size_t>(executor_.size()));
  executor_.ParallelFor(shares.size(), [&](size_t i) {
    const size_t first = values.rows() * i / shares.size();
    const size_t end = values.rows() * (i + 1) / shares.size();
    Share& share = shares[i];
    ForEachPlace(runs, first, end,
                 [&](size_t row, const RowPlace& place, const RowRun&) {
                   const int64_t found =
                       CountIn(values.Row(row), values.cols());
                   if (share.count == 0) {
                     share.first_row = row;
                     share.place = place;
                   }
                   share.count += found;
                   ++share.rows;
                 });
  });
  for (const Share& share : shares) {
    if (share.count > 0 && (count.count == 0 || share.place < count.place)) {
      count.place = share.place;
      count.col = 0;
      while (!IsNonFinite(values(share.first_row, count.col))) ++count.col;
    }
    count.count += share.count;
    count.elements += share.rows * static_cast<int64_t>(values.cols());
  }
}

std::vector<NonFinite> NonFiniteCounter::Finish(
    expert_parallel::Mesh& mesh) const {
  const size_t tensors = counts_.size();
  std::vector<Part> parts;
  for (const Count& count : counts_) {
    parts.push_back({count.count, count.elements, RowNumber(count),
                     static_cast<int64_t>(count.col)});
  }
  std::vector<int32_t> words(tensors * sizeof(Part) / sizeof(int32_t));
  if (!words.empty()) {
    std::memcpy(words.data(), parts.data(), tensors * sizeof(Part));
    words = expert_parallel::Gather(mesh, words);
    parts.resize(tensors * mesh.processes());
    std::memcpy(parts.data(), words.data(), parts.size() * sizeof(Part));
  }

  std::vector<NonFinite> found;
  for (size_t i = 0; i < tensors; ++i) {
    NonFinite tensor = {.name = counts_[i].name};
    for (size_t process = 0; process < mesh.processes(); ++process) {
      const Part& part = parts[process * tensors + i];
      if (tensor.count == 0 && part.count > 0) {
        tensor.process = process;
        tensor.row = static_cast<size_t>(part.row);
        tensor.col = static_cast<size_t>(part.col);
      }
      tensor.count += part.count;
      tensor.elements += part.elements;
    }
    if (tensor.count > 0) found.push_back(std::move(tensor));
  }
  return found;
}

}  // namespace isoloss::probes
