#include "isoloss/probes/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "isoloss/expert_parallel/collectives.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/probes/operand_tensors.h"
#include "isoloss/probes/row_places.h"

namespace isoloss::probes {
namespace {

static_assert(std::is_trivially_copyable_v<TensorStates> &&
              sizeof(TensorStates) % sizeof(int32_t) == 0);

/// A row travels as these words: its place, whether a segment begins with it,
/// the states of the segment's quantisations, and its elements' bits.
enum Word : size_t {
  kGroup,
  kSegment,
  kPosition,
  kBegins,
  kStates,
  kHeadWords = kStates + sizeof(TensorStates) / sizeof(int32_t)
};

/// Returns all rows of this process, padded to `rows`. Group -1 is no row.
std::vector<int32_t> WordsOf(const model::Tensor& tensor, size_t rows) {
  const size_t cols = tensor.values.cols();
  const size_t width = kHeadWords + cols;
  std::vector<int32_t> words(rows * width, -1);
  if (!tensor.rows.counts) return words;
  ForEachPlace(RunsOf(tensor.rows, tensor.values.rows()), 0,
               tensor.values.rows(),
               [&](size_t row, const RowPlace& place, const RowRun& run) {
                 int32_t* head = &words[row * width];
                 head[kGroup] = static_cast<int32_t>(place.group);
                 head[kSegment] = static_cast<int32_t>(place.segment);
                 head[kPosition] = static_cast<int32_t>(place.position);
                 head[kBegins] = row == run.begin ? 1 : 0;
                 const TensorStates states = StatesOf(tensor, run);
                 std::memcpy(head + kStates, &states, sizeof(states));
                 std::memcpy(head + kHeadWords, tensor.values.Row(row),
                             cols * sizeof(float));
               });
  return words;
}

/// Gathers WordsOf of all processes, with the same number of rows of each.
std::vector<int32_t> GatherRows(const model::Tensor& tensor,
                                expert_parallel::Mesh& mesh) {
  const auto mine = static_cast<int32_t>(tensor.values.rows());
  const std::vector<int32_t> counts =
      expert_parallel::Gather(mesh, std::span(&mine, 1));
  const auto most =
      static_cast<size_t>(*std::max_element(counts.begin(), counts.end()));
  return expert_parallel::Gather(mesh, WordsOf(tensor, most));
}

/// Returns the rows of all processes, each `width` words, in the order of
/// their places.
std::vector<const int32_t*> InOrder(const std::vector<int32_t>& words,
                                    size_t width) {
  std::vector<const int32_t*> rows;
  for (size_t at = 0; at < words.size(); at += width) {
    if (words[at + kGroup] >= 0) rows.push_back(&words[at]);
  }
  std::sort(rows.begin(), rows.end(), [](const int32_t* a, const int32_t* b) {
    return std::lexicographical_compare(a, a + kBegins, b, b + kBegins);
  });
  return rows;
}

/// Takes values of the whole batch, and where blocks down columns end.
void TakeRows(const std::vector<const int32_t*>& rows,
              runlog::DumpedTensor& tensor) {
  const auto cols = static_cast<size_t>(tensor.cols);
  tensor.rows = static_cast<int64_t>(rows.size());
  tensor.values.resize(rows.size() * cols);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(&tensor.values[i * cols], rows[i] + kHeadWords,
                cols * sizeof(float));
    if (rows[i][kBegins] == 1 && i > 0) {
      tensor.segment_ends.push_back(static_cast<int64_t>(i));
    }
  }
  if (!rows.empty()) {
    tensor.segment_ends.push_back(static_cast<int64_t>(rows.size()));
  }
}

template <typename T, typename U>
void Append(const Matrix<T>& from, std::vector<U>& to) {
  to.insert(to.end(), from.data(), from.data() + from.size());
}

/// Returns the states of the segments that have rows.
std::vector<TensorStates> StatesIn(const std::vector<const int32_t*>& rows) {
  std::vector<TensorStates> all;
  for (const int32_t* row : rows) {
    if (row[kBegins] == 1) {
      TensorStates states;
      std::memcpy(static_cast<void*>(&states), row + kStates, sizeof(states));
      all.push_back(states);
    }
  }
  return all;
}

/// Quantises an operand that is no MX blocks, segment by segment. Returns its
/// cells.
runlog::DumpedCells CellsOf(const model::Tensor& tensor, Direction direction,
                            const std::vector<TensorStates>& states,
                            const runlog::DumpedTensor& dumped) {
  const formats::Quantization& quantization =
      *QuantizationOf(tensor, direction);
  const auto cols = static_cast<size_t>(dumped.cols);
  runlog::DumpedCells cells;
  for (const size_t extent : {quantization.cell.rows, quantization.cell.cols,
                              formats::RunLength(quantization.transform)}) {
    cells.extents.push_back(static_cast<int64_t>(extent));
  }
  size_t begin = 0;
  for (size_t i = 0; i < states.size(); ++i) {
    const auto end = static_cast<size_t>(dumped.segment_ends[i]);
    const formats::QuantizedTensor quantized =
        QuantizeTensor({&dumped.values[begin * cols], end - begin, cols},
                       tensor, direction, states[i])
            .quantized;
    Append(quantized.codes, cells.codes);
    Append(quantized.scales, cells.scales);
    cells.tensor_scales.push_back(quantized.tensor_scale);
    begin = end;
  }
  return cells;
}

void QuantizeRows(const formats::Quantization& spec,
                  runlog::DumpedTensor& tensor) {
  const formats::MxMatrix mx = formats::QuantizeMx(
      {tensor.values.data(), static_cast<size_t>(tensor.rows),
       static_cast<size_t>(tensor.cols)},
      spec);
  tensor.format_rowwise = spec.element->name;
  Append(mx.codes, tensor.codes_rowwise);
  Append(mx.scales, tensor.scales_rowwise);
}

void QuantizeColumns(const formats::Quantization& spec,
                     runlog::DumpedTensor& tensor) {
  const auto cols = static_cast<size_t>(tensor.cols);
  tensor.format_columnwise = spec.element->name;
  size_t begin = 0;
  for (const int64_t segment_end : tensor.segment_ends) {
    const auto end = static_cast<size_t>(segment_end);
    const Matrix<float> columns =
        Transposed<float>({&tensor.values[begin * cols], end - begin, cols});
    const formats::MxMatrix mx = formats::QuantizeMx(columns.view(), spec);
    Append(Transposed(mx.codes.cview()), tensor.codes_columnwise);
    Append(Transposed(mx.scales.cview()), tensor.scales_columnwise);
    begin = end;
  }
}

/// Sets both directions of an operand.
void Quantize(const model::Tensor& tensor,
              const std::vector<TensorStates>& states,
              runlog::DumpedTensor& dumped) {
  if (IsGeneral(tensor, Direction::kRowwise)) {
    dumped.format_rowwise = formats::QuantizationName(*tensor.rowwise);
    dumped.cells_rowwise = CellsOf(tensor, Direction::kRowwise, states, dumped);
  } else if (tensor.rowwise != nullptr) {
    QuantizeRows(*tensor.rowwise, dumped);
  }
  if (IsGeneral(tensor, Direction::kColumnwise)) {
    dumped.format_columnwise = formats::QuantizationName(*tensor.columnwise);
    if (tensor.columnwise_again && tensor.rowwise != nullptr) {
      dumped.format_columnwise +=
          " of " + formats::QuantizationName(*tensor.rowwise);
    }
    dumped.cells_columnwise =
        CellsOf(tensor, Direction::kColumnwise, states, dumped);
  } else if (tensor.columnwise != nullptr) {
    QuantizeColumns(*tensor.columnwise, dumped);
  }
}

}  // namespace

void TensorDumper::Begin(int64_t step, std::vector<std::string> patterns) {
  patterns_ = std::move(patterns);
  step_ = step;
  orders_.clear();
  collected_.clear();
}

bool TensorDumper::Matches(std::string_view name) const {
  return precision::FirstMatch(patterns_, name) != nullptr;
}

/// Returns whether rows are dumped that the choice `expert_ids` sent to their
/// experts.
bool TensorDumper::MatchesRowsOf(const std::string& expert_ids) const {
  const runlog::GraphColumns& tensors = graph_.tensors;
  const auto choice = std::ranges::find(tensors.name, expert_ids);
  if (choice == tensors.name.end()) return false;
  const std::string& moe =
      tensors.moe[static_cast<size_t>(choice - tensors.name.begin())];
  for (size_t i = 0; i < tensors.name.size(); ++i) {
    if (tensors.moe[i] == moe && tensors.rows_of[i] == "expert_tokens" &&
        Matches(tensors.name[i])) {
      return true;
    }
  }
  return false;
}

void TensorDumper::Add(const model::Tensor& tensor,
                       expert_parallel::Mesh& mesh) {
  if (patterns_.empty()) return;
  const std::string name = tensor.Name();
  const auto next = static_cast<int64_t>(orders_.size());
  const int64_t order = orders_.try_emplace(name, next).first->second;
  if (Matches(name)) Collect(name, order, tensor, mesh);
}

void TensorDumper::AddRouting(std::string_view module,
                              MatrixView<const int32_t> expert_ids,
                              size_t first_token, expert_parallel::Mesh& mesh) {
  if (patterns_.empty()) return;
  const std::string name = fmt::format("{}_expert_ids", module);
  if (!Matches(name) && !MatchesRowsOf(name)) return;
  Matrix<float> values(expert_ids.rows(), expert_ids.cols());
  for (size_t row = 0; row < values.rows(); ++row) {
    std::copy_n(expert_ids.Row(row), values.cols(), values.Row(row));
  }
  Collect(name, static_cast<int64_t>(orders_.size()),
          {.module = module,
           .kind = model::TensorKind::kExpertIds,
           .values = values.view(),
           .rows = {.first_row = first_token}},
          mesh);
}

void TensorDumper::Collect(const std::string& name, int64_t order,
                           const model::Tensor& tensor,
                           expert_parallel::Mesh& mesh) {
  const std::vector<int32_t> words = GatherRows(tensor, mesh);
  if (mesh.process() != 0) return;
  auto part = std::ranges::find(
      collected_, name, [](const Collected& other) { return other.head.name; });
  if (part == collected_.end()) {
    const runlog::DumpedTensor head = {
        .name = name,
        .module = std::string(tensor.module),
        .kind = std::string(model::TensorKindName(tensor.kind)),
        .order = order,
        .cols = static_cast<int64_t>(tensor.values.cols())};
    part =
        collected_.insert(part, {head,
                                 {.kind = tensor.kind,
                                  .rowwise = tensor.rowwise,
                                  .columnwise = tensor.columnwise,
                                  .columnwise_again = tensor.columnwise_again},
                                 {}});
  }
  part->words.insert(part->words.end(), words.begin(), words.end());
}

void TensorDumper::Write(const std::filesystem::path& folder,
                         const std::string& run) {
  if (collected_.empty()) return;
  runlog::TensorDump dump = {
      .run = run, .step = step_, .graph = runlog::GraphOfStep(graph_, step_)};
  for (auto& [head, quantisation, words] : collected_) {
    const auto rows =
        InOrder(words, kHeadWords + static_cast<size_t>(head.cols));
    TakeRows(rows, head);
    if (quantisation.kind == model::TensorKind::kExpertIds) {
      // Each part begins a segment, but no operand has blocks here.
      head.segment_ends = {head.rows};
    }
    Quantize(quantisation, StatesIn(rows), head);
    dump.tensors.push_back(std::move(head));
    words = {};
  }
  std::filesystem::create_directories(folder);
  runlog::WriteTensorDump(dump, folder / DumpFileName(run, step_));
}

std::string DumpFileName(const std::string& run, int64_t step) {
  return fmt::format("{}.dump-{:06}.h5", run, step);
}

}  // namespace isoloss::probes
