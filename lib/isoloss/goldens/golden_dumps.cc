#include "isoloss/goldens/golden_dumps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/goldens/golden_folder.h"
#include "isoloss/runlog/tensor_dump.h"

namespace isoloss::goldens {
namespace {

namespace fs = std::filesystem;
using runlog::DumpedTensor;
using runlog::TensorColumns;

/// These statistics are computed from the elements; all of them are exact.
struct Figures {
  double nonfinite = 0;
  double zeros = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
};

Figures FiguresOf(std::span<const float> values) {
  Figures figures;
  for (const float value : values) {
    if (!std::isfinite(value)) {
      ++figures.nonfinite;
      continue;
    }
    if (value == 0) ++figures.zeros;
    figures.min = std::min(figures.min, static_cast<double>(value));
    figures.max = std::max(figures.max, static_cast<double>(value));
  }
  return figures;
}

std::string StatisticsFault(const DumpedTensor& tensor,
                            const TensorColumns& logged, size_t at) {
  const Figures found = FiguresOf(tensor.values);
  const bool any = found.min <= found.max;
  const std::pair<size_t, double> figures[] = {
      {runlog::kStat_numel, static_cast<double>(tensor.values.size())},
      {runlog::kStat_nonfinite_num, found.nonfinite},
      {runlog::kStat_zeros_num, found.zeros},
      {runlog::kStat_min, found.min},
      {runlog::kStat_max, found.max},
  };
  for (const auto& [statistic, figure] : figures) {
    const std::vector<double>& column = logged.statistics[statistic];
    // NaN means that nothing was logged of this tensor at this step.
    if (!any || column.empty() || std::isnan(column[at])) continue;
    if (column[at] == figure) continue;
    return fmt::format("its {} is {}, but {} in the log",
                       runlog::kTensorStatistics[statistic].name, figure,
                       column[at]);
  }
  return "";
}

std::string ScalesFault(std::span<const uint8_t> scales,
                        std::span<const int32_t> histogram, size_t at) {
  // The oracle checks operands that have cells instead of blocks.
  if (histogram.empty() || scales.empty()) return "";
  const auto logged =
      histogram.subspan(at * runlog::kScaleBytes, runlog::kScaleBytes);
  // Without a block nothing was logged of this operand at this step.
  if (std::ranges::all_of(logged, [](int32_t n) { return n == 0; })) return "";
  std::array<int32_t, runlog::kScaleBytes> found{};
  for (const uint8_t scale : scales) ++found[scale];
  for (size_t byte = 0; byte < found.size(); ++byte) {
    if (found[byte] == logged[byte]) continue;
    return fmt::format("{} blocks have scale byte {}, but {} in the log",
                       found[byte], byte, logged[byte]);
  }
  return "";
}

/// Looks at one orientation of a quantised operand block by block.
class Operand {
 public:
  Operand(const DumpedTensor& tensor, const char* where,
          const std::string& format, const std::vector<uint8_t>& codes,
          const std::vector<uint8_t>& scales)
      : values_(tensor.values),
        where_(where),
        codes_(codes),
        scales_(scales),
        format_(formats::FormatByName(format)),
        power_(std::ldexp(1.0, format_.emax)) {
    for (unsigned code = 0; code < 1U << format_.bits(); ++code) {
      const auto value = static_cast<double>(
          formats::Decode(format_, static_cast<uint8_t>(code)));
      if (std::isfinite(value)) representable_.push_back(value);
    }
    std::ranges::sort(representable_);
  }

  /// Block number `block` holds `elements` of the tensor.
  void CheckBlock(size_t block, const std::vector<size_t>& elements) {
    if (!fault_.empty()) return;  // the first one is kept
    const uint8_t scale = scales_[block];
    float amax = 0;
    for (const size_t i : elements) {
      // The oracle checks blocks that are not finite.
      if (!std::isfinite(values_[i])) return;
      amax = std::max(amax, std::fabs(values_[i]));
    }
    CheckScale(amax, scale);
    for (const size_t i : elements) {
      if (fault_.empty()) CheckCode(i, scale);
    }
  }
  const std::string& fault() const { return fault_; }

 private:
  /// By each of our scaling rules the largest magnitude of a scaled block is
  /// below twice the largest power of two of the format. It is at least half of
  /// that power.
  void CheckScale(float amax, uint8_t scale) {
    // At these ends scales saturate or stand for NaN.
    constexpr uint8_t kLargest = 253;
    if (scale == 0 || scale > kLargest) return;
    const auto scaled = static_cast<double>(std::ldexp(amax, 127 - scale));
    if (scaled >= 2 * power_ || scaled < power_ / 2) {
      fault_ = fmt::format("a block {} with largest magnitude {} has scale {}",
                           where_, amax, scale);
    }
  }

  /// No other value of the format may be nearer to the element. If two are
  /// equally near, the code must be even.
  void CheckCode(size_t i, uint8_t scale) {
    constexpr uint8_t kNanScale = 255;
    if (scale == kNanScale) return;
    const double scaled =
        std::clamp(std::ldexp(static_cast<double>(values_[i]), 127 - scale),
                   representable_.front(), representable_.back());
    const auto value = static_cast<double>(formats::Decode(format_, codes_[i]));
    const auto above = std::ranges::lower_bound(representable_, scaled);
    const double up = *above - scaled;
    const double down =
        above == representable_.begin() ? up : scaled - *std::prev(above);
    const bool nearest = std::fabs(value - scaled) == std::min(up, down);
    const bool even = up != down || up == 0 || codes_[i] % 2 == 0;
    if (nearest && even && std::signbit(value) == std::signbit(values_[i])) {
      return;
    }
    fault_ = fmt::format(
        "element {} is {}, but has code {} {} in a block with scale {}", i,
        values_[i], codes_[i], where_, scale);
  }

  std::span<const float> values_;
  const char* where_;
  std::span<const uint8_t> codes_;
  std::span<const uint8_t> scales_;
  const formats::Format& format_;
  const double power_;
  std::vector<double> representable_;  ///< ascending
  std::string fault_;
};

std::string RowsFault(const DumpedTensor& tensor) {
  if (tensor.codes_rowwise.empty()) return "";
  Operand operand(tensor, "along a row", tensor.format_rowwise,
                  tensor.codes_rowwise, tensor.scales_rowwise);
  const auto cols = static_cast<size_t>(tensor.cols);
  const size_t per_row =
      (cols + formats::kMxBlockSize - 1) / formats::kMxBlockSize;
  for (size_t block = 0; block < tensor.scales_rowwise.size(); ++block) {
    const size_t first = block % per_row * formats::kMxBlockSize;
    const size_t last = std::min(first + formats::kMxBlockSize, cols);
    std::vector<size_t> elements;
    for (size_t col = first; col < last; ++col) {
      elements.push_back(block / per_row * cols + col);
    }
    operand.CheckBlock(block, elements);
  }
  return operand.fault();
}

std::string ColumnsFault(const DumpedTensor& tensor) {
  if (tensor.codes_columnwise.empty()) return "";
  Operand operand(tensor, "down a column", tensor.format_columnwise,
                  tensor.codes_columnwise, tensor.scales_columnwise);
  const auto cols = static_cast<size_t>(tensor.cols);
  size_t blocks = 0;  // in all rows above `first`, of one column
  size_t first = 0;
  for (const int64_t segment_end : tensor.segment_ends) {
    const auto end = static_cast<size_t>(segment_end);
    for (; first < end; ++blocks) {
      const size_t last = std::min(first + formats::kMxBlockSize, end);
      for (size_t col = 0; col < cols; ++col) {
        std::vector<size_t> elements;
        for (size_t row = first; row < last; ++row) {
          elements.push_back(row * cols + col);
        }
        operand.CheckBlock(blocks * cols + col, elements);
      }
      first = last;
    }
  }
  return operand.fault();
}

/// Finds faults that show without a log.
std::string OperandFault(const DumpedTensor& tensor) {
  std::string fault = RowsFault(tensor);
  if (fault.empty()) fault = ColumnsFault(tensor);
  return fault.empty() ? "" : fmt::format("{}: {}", tensor.name, fault);
}

/// Rows of experts tell nothing without the experts of each token.
std::string RoutingFault(const runlog::TensorDump& dump) {
  constexpr std::string_view kExperts = ".routed_experts.";
  for (const DumpedTensor& tensor : dump.tensors) {
    const size_t end = tensor.name.find(kExperts);
    if (end == std::string::npos || tensor.kind == "weight") continue;
    const std::string moe = tensor.name.substr(0, end + 1);
    const bool routed =
        std::ranges::any_of(dump.tensors, [&](const DumpedTensor& other) {
          return other.kind == "expert_ids" && other.name.starts_with(moe);
        });
    if (!routed) {
      return fmt::format("{}: the expert ids of {} are not beside it",
                         tensor.name, moe.substr(0, end));
    }
  }
  return "";
}

/// Checks that the step's row of the log belongs to these tensors.
std::string LogFault(const runlog::TensorDump& dump,
                     const runlog::RunLog& log) {
  const TensorColumns& logged = log.tensors;
  const auto step = std::ranges::find(logged.step, dump.step);
  if (step == logged.step.end()) return "";
  const auto row = static_cast<size_t>(step - logged.step.begin());
  for (const DumpedTensor& tensor : dump.tensors) {
    const auto name = std::ranges::find(logged.names, tensor.name);
    if (name == logged.names.end()) {
      return fmt::format("{}: the log knows no such tensor", tensor.name);
    }
    const size_t at = row * logged.names.size() +
                      static_cast<size_t>(name - logged.names.begin());
    std::string fault = StatisticsFault(tensor, logged, at);
    if (fault.empty()) {
      fault = ScalesFault(tensor.scales_rowwise, logged.e8m0_histogram, at);
    }
    if (fault.empty()) {
      fault = ScalesFault(tensor.scales_columnwise,
                          logged.e8m0_histogram_columnwise, at);
    }
    if (!fault.empty()) return fmt::format("{}: {}", tensor.name, fault);
  }
  return "";
}

/// Here NaN equals itself, and -0 is not 0.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool SameBits(const runlog::DumpedCells& a, const runlog::DumpedCells& b) {
  return a.extents == b.extents && a.codes == b.codes &&
         SameBits(a.scales, b.scales) &&
         SameBits(a.tensor_scales, b.tensor_scales);
}

bool SameBits(const DumpedTensor& a, const DumpedTensor& b) {
  return a.kind == b.kind && a.order == b.order && a.rows == b.rows &&
         a.cols == b.cols && a.segment_ends == b.segment_ends &&
         SameBits(a.values, b.values) && a.codes_rowwise == b.codes_rowwise &&
         a.scales_rowwise == b.scales_rowwise &&
         a.codes_columnwise == b.codes_columnwise &&
         a.scales_columnwise == b.scales_columnwise &&
         SameBits(a.cells_rowwise, b.cells_rowwise) &&
         SameBits(a.cells_columnwise, b.cells_columnwise);
}

/// Both dumps are of one run and step, executed in two ways.
std::string Difference(const runlog::TensorDump& a,
                       const runlog::TensorDump& b) {
  // Only tensors that both dumps hold are compared, since each lane chooses its
  // own.
  for (const DumpedTensor& tensor : a.tensors) {
    const auto other =
        std::ranges::find(b.tensors, tensor.name, &DumpedTensor::name);
    if (other != b.tensors.end() && !SameBits(tensor, *other)) {
      return fmt::format("{}: another lane dumped other bits", tensor.name);
    }
  }
  return "";
}

}  // namespace

std::string GoldenDumps::Add(const fs::path& out,
                             const std::vector<compare::Run>& runs) {
  const fs::path folder = out / runlog::kDumpFolder;
  if (!fs::is_directory(folder)) return "";
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const runlog::TensorDump dump = runlog::ReadTensorDump(entry.path());
    std::string fault = RoutingFault(dump);
    for (const DumpedTensor& tensor : dump.tensors) {
      if (fault.empty()) fault = OperandFault(tensor);
    }
    for (const compare::Run& run : runs) {
      if (!fault.empty()) break;
      if (GoldenName(run) == dump.run) fault = LogFault(dump, run.log);
    }
    const auto [first, is_first] = files_.emplace(name, entry.path());
    if (fault.empty() && !is_first) {
      fault = Difference(runlog::ReadTensorDump(first->second), dump);
    }
    if (!fault.empty()) return fmt::format("{}: {}", name, fault);
  }
  return "";
}

}  // namespace isoloss::goldens
