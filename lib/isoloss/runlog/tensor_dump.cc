#include "isoloss/runlog/tensor_dump.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>

#include "isoloss/base/error.h"
#include "isoloss/hdf5/handle.h"
#include "isoloss/hdf5/sealed_file.h"
#include "isoloss/hdf5/tree.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/runlog/schema_reader.h"
#include "isoloss/runlog/schema_writer.h"

namespace isoloss::runlog {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDumpVersion = 3;
constexpr int64_t kVersionWithoutCells = 2;
constexpr int64_t kBlock = 32;  // elements that share a scale

using Extent = std::vector<uint64_t>;

Extent ExtentOf(int64_t rows, int64_t cols) {
  return {static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)};
}

int64_t RoundUp(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

int64_t Blocks(int64_t elements) { return RoundUp(elements, kBlock) / kBlock; }

/// Returns the number of blocks of all segments down a column.
int64_t ColumnBlocks(const DumpedTensor& tensor) {
  int64_t blocks = 0;
  int64_t begin = 0;
  for (const int64_t end : tensor.segment_ends) {
    blocks += Blocks(end - begin);
    begin = end;
  }
  return blocks;
}

bool SegmentsFit(const DumpedTensor& tensor) {
  int64_t begin = 0;
  for (const int64_t end : tensor.segment_ends) {
    if (end <= begin) return false;
    begin = end;
  }
  return begin == tensor.rows;
}

bool ExtentsFit(const DumpedCells& cells) {
  const std::vector<int64_t>& e = cells.extents;
  return e.size() == 3 && e[0] >= 0 && e[1] >= 0 && e[2] >= 1 &&
         std::ranges::max(e) <= kMaxValues;
}

/// Shows `visitor` the cells of one direction: "codes_rowwise" and so on.
template <typename Visitor, typename Tensor, typename Cells>
void VisitCells(Visitor& visitor, const Tensor& tensor, bool columnwise,
                Cells& cells) {
  const std::string direction = columnwise ? "columnwise" : "rowwise";
  visitor.Array(("extents_" + direction).c_str(), cells.extents, {3});
  visitor.CheckExtents(cells, direction);
  const std::vector<CellTensor> tensors = CellTensorsOf(tensor, columnwise);
  Extent codes = {0};
  Extent scales = {0};
  for (const CellTensor& each : tensors) {
    codes[0] += static_cast<uint64_t>(each.rows * each.cols);
    scales[0] += static_cast<uint64_t>(each.cells());
  }
  visitor.Array(("codes_" + direction).c_str(), cells.codes, codes);
  visitor.Array(("scales_" + direction).c_str(), cells.scales, scales);
  visitor.Array(("tensor_scales_" + direction).c_str(), cells.tensor_scales,
                {tensors.size()});
}

/// Calls visitor.Text, .Number and .Array for each part of a tensor's group.
/// Parts come after those on which they depend.
template <typename Visitor, typename Tensor>
void VisitTensor(Visitor& visitor, Tensor& tensor) {
  visitor.Text("module", tensor.module);
  visitor.Text("kind", tensor.kind);
  visitor.Number("order", tensor.order);
  visitor.Number("rows", tensor.rows);
  visitor.Number("cols", tensor.cols);
  visitor.Text("format_rowwise", tensor.format_rowwise);
  visitor.Text("format_columnwise", tensor.format_columnwise);
  const Extent whole = ExtentOf(tensor.rows, tensor.cols);
  visitor.Array("values", tensor.values, whole);
  visitor.Array("segment_ends", tensor.segment_ends, {});
  visitor.CheckSegments(tensor);
  if (HasCells(tensor.format_rowwise)) {
    VisitCells(visitor, tensor, false, tensor.cells_rowwise);
  } else if (!tensor.format_rowwise.empty()) {
    visitor.Array("codes_rowwise", tensor.codes_rowwise, whole);
    visitor.Array("scales_rowwise", tensor.scales_rowwise,
                  ExtentOf(tensor.rows, Blocks(tensor.cols)));
  }
  if (HasCells(tensor.format_columnwise)) {
    VisitCells(visitor, tensor, true, tensor.cells_columnwise);
  } else if (!tensor.format_columnwise.empty()) {
    visitor.Array("codes_columnwise", tensor.codes_columnwise, whole);
    visitor.Array("scales_columnwise", tensor.scales_columnwise,
                  ExtentOf(ColumnBlocks(tensor), tensor.cols));
  }
}

class TensorWriter {
 public:
  TensorWriter(const hdf5::Handle& file, const std::string& name)
      : name_(name), group_(hdf5::CreateGroup(file, name.c_str())) {}

  void Text(const char* name, const std::string& text) {
    hdf5::WriteAttribute(group_, name, text);
  }
  void Number(const char* name, int64_t number) {
    hdf5::WriteAttribute(group_, name, number);
  }
  /// An empty extent means the length of `values`.
  template <typename T>
  void Array(const char* name, const std::vector<T>& values, Extent extent) {
    if (extent.empty()) extent = {values.size()};
    uint64_t needed = 1;
    for (const uint64_t size : extent) needed *= size;
    if (values.size() != needed) {
      ThrowError(ErrorKind::kShape,
                 "tensor dump: {}/{} has {} values, but must be {}. Pass the "
                 "whole array.",
                 name_, name, values.size(), fmt::join(extent, "x"));
    }
    const hdf5::Handle dataset =
        hdf5::CreateDataset(group_, name, hdf5::TypeOf<T>(), extent);
    hdf5::WriteDataset<T>(dataset, values);
  }
  void CheckSegments(const DumpedTensor& tensor) const {
    if (SegmentsFit(tensor)) return;
    ThrowError(ErrorKind::kShape,
               "tensor dump: {}/segment_ends are {}, but must ascend to the {} "
               "rows. Leave out segments without rows.",
               name_, fmt::join(tensor.segment_ends, ", "), tensor.rows);
  }
  void CheckExtents(const DumpedCells& cells,
                    const std::string& direction) const {
    if (ExtentsFit(cells)) return;
    ThrowError(ErrorKind::kShape,
               "tensor dump: {}/extents_{} are {}, but must be three, from 0, "
               "0 and 1 to 2^28. Pass those of the description.",
               name_, direction, fmt::join(cells.extents, ", "));
  }

 private:
  const std::string& name_;
  hdf5::Handle group_;
};

[[noreturn]] void Reject(const std::string& path, const std::string& what,
                         const std::string& found,
                         const std::string& expected) {
  ThrowError(ErrorKind::kFormat,
             "{}: {} is {}, but in a tensor dump it is {}. Pass a file that "
             "`isoloss run --dump` wrote.",
             path, what, found, expected);
}

template <typename T>
T ReadAttribute(const std::string& path, const std::string& where,
                const hdf5::Object& object, const char* name) {
  const std::string what = fmt::format("{}attribute {}", where, name);
  const hdf5::Values* attribute = object.Attribute(name);
  if (attribute == nullptr) Reject(path, what, "missing", "present");
  const bool is_scalar = attribute->IsScalar();
  if (attribute->type != hdf5::ValueTypeOf<T>() || !is_scalar) {
    Reject(path, what, is_scalar ? attribute->type_name : "an array",
           std::string(hdf5::Describe(hdf5::ValueTypeOf<T>())));
  }
  return hdf5::One<T>(*attribute);
}

/// Reads a dataset of the given extent, or of any length if the extent is
/// empty.
template <typename T>
std::vector<T> ReadArray(const std::string& path, const std::string& where,
                         const hdf5::Object& parent, const char* name,
                         const Extent& extent) {
  const std::string what = where + name;
  const hdf5::Object* dataset = parent.Member(name);
  if (dataset == nullptr) Reject(path, what, "missing", "present");
  const hdf5::Values& values = dataset->values;
  if (values.type != hdf5::ValueTypeOf<T>()) {
    Reject(path, what, dataset->is_group ? "a group" : values.type_name,
           std::string(hdf5::Describe(hdf5::ValueTypeOf<T>())));
  }
  const Extent& found = values.extent;
  const bool fits = extent.empty() ? found.size() == 1 : found == extent;
  if (!fits) {
    Reject(
        path, what, fmt::format("[{}]", fmt::join(found, ", ")),
        extent.empty() ? "[n]" : fmt::format("[{}]", fmt::join(extent, ", ")));
  }
  return hdf5::Copied<T>(values);
}

class TensorReader {
 public:
  TensorReader(const std::string& path, const hdf5::Object& file,
               const std::string& name)
      : path_(path), where_(name + "/"), group_(file.Member(name)) {
    if (group_ == nullptr) Reject(path, "group " + name, "missing", "present");
  }

  void Text(const char* name, std::string& text) {
    text = ReadAttribute<std::string>(path_, where_, *group_, name);
  }
  void Number(const char* name, int64_t& number) {
    number = ReadAttribute<int64_t>(path_, where_, *group_, name);
    if (number < 0 || number > kMaxValues) {
      Reject(path_, where_ + name, std::to_string(number), "from 0 to 2^28");
    }
  }
  template <typename T>
  void Array(const char* name, std::vector<T>& values, const Extent& extent) {
    values = ReadArray<T>(path_, where_, *group_, name, extent);
  }
  void CheckSegments(const DumpedTensor& tensor) const {
    if (SegmentsFit(tensor)) return;
    Reject(path_, where_ + "segment_ends",
           fmt::format("[{}]", fmt::join(tensor.segment_ends, ", ")),
           fmt::format("ascending to the {} rows", tensor.rows));
  }
  void CheckExtents(const DumpedCells& cells,
                    const std::string& direction) const {
    if (ExtentsFit(cells)) return;
    Reject(path_, where_ + "extents_" + direction,
           fmt::format("[{}]", fmt::join(cells.extents, ", ")),
           "three, from 0, 0 and 1 to 2^28");
  }

 private:
  const std::string& path_;
  std::string where_;
  const hdf5::Object* group_;
};

/// Returns the schema of the parts that a dump shares with run logs.
const Schema& GraphWithVersion() {
  static const Schema schema =
      Joined({{Group("", "", 1,
                     {{Role::kRunVersion,
                       {"run_schema_version", "1",
                        "Version of the run log's layout that the graph "
                        "follows",
                        Domain::Count(1)},
                       kSchemaVersion}})},
              SchemaOf<ModelGraph>()});
  return schema;
}

/// Requires that the graph is whole and knows each tensor.
void CheckGraph(const TensorDump& dump, const std::string& path) {
  const std::string wrong = WrongGraph(dump.graph);
  if (!wrong.empty()) Reject(path, "the graph", wrong, "whole");
  const GraphIndex graph(dump.graph);
  for (const DumpedTensor& tensor : dump.tensors) {
    const auto place = graph.Find(tensor.name);
    if (place && graph.tensors().module[*place] == tensor.module &&
        graph.tensors().kind[*place] == tensor.kind) {
      continue;
    }
    Reject(
        path, "group " + tensor.name,
        fmt::format("of module `{}` and kind `{}`", tensor.module, tensor.kind),
        "a tensor of /graph");
  }
}

TensorDump Read(const hdf5::Object& file, const std::string& path) {
  const auto version = ReadAttribute<int64_t>(path, "", file, "dump_version");
  if (version != kDumpVersion && version != kVersionWithoutCells) {
    Reject(path, "attribute dump_version", std::to_string(version),
           fmt::format("{} or {}", kVersionWithoutCells, kDumpVersion));
  }
  TensorDump dump;
  dump.run = ReadAttribute<std::string>(path, "", file, "run");
  dump.step = ReadAttribute<int64_t>(path, "", file, "step");
  if (dump.step < 0 || dump.step > hdf5::kMaxCounted) {
    Reject(path, "attribute step", std::to_string(dump.step), "from 0 to 2^53");
  }
  std::set<std::string> known;
  for (const std::string& name :
       ReadArray<std::string>(path, "/", file, "names", {})) {
    if (!known.insert(name).second) {
      Reject(path, "/names", fmt::format("`{}` twice", name),
             "a list in which each tensor stands once");
    }
    DumpedTensor tensor = {.name = name};
    TensorReader reader(path, file, name);
    VisitTensor(reader, tensor);
    dump.tensors.push_back(std::move(tensor));
  }
  ReadColumns(file, path, hdf5::kTensorDumpFile, GraphWithVersion(),
              MutableView(dump.graph));
  CheckGraph(dump, path);
  return dump;
}

}  // namespace

bool HasCells(std::string_view format) {
  return format.find("·") != std::string_view::npos;
}

std::vector<CellTensor> CellTensorsOf(const DumpedTensor& tensor,
                                      bool columnwise) {
  const DumpedCells& cells =
      columnwise ? tensor.cells_columnwise : tensor.cells_rowwise;
  std::vector<CellTensor> tensors;
  CellTensor next;
  for (const int64_t end : tensor.segment_ends) {
    const int64_t count = end - next.first_row;
    next.rows = columnwise ? tensor.cols : count;
    next.cols = RoundUp(columnwise ? count : tensor.cols, cells.extents[2]);
    const auto extent = [](int64_t of_cell, int64_t whole) {
      return std::max<int64_t>(of_cell == 0 ? whole : of_cell, 1);
    };
    next.cell_rows = extent(cells.extents[0], next.rows);
    next.cell_cols = extent(cells.extents[1], next.cols);
    tensors.push_back(next);
    next.first_row = end;
    next.first_code += static_cast<size_t>(next.rows * next.cols);
    next.first_scale += static_cast<size_t>(next.cells());
  }
  return tensors;
}

std::vector<std::string> TensorDump::TensorNames() const {
  std::vector<std::string> names;
  for (const DumpedTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

void WriteTensorDump(const TensorDump& dump, const fs::path& path) {
  hdf5::WriteSealedFile(
      path, hdf5::kTensorDumpFile, [&dump](const hdf5::Handle& file) {
        hdf5::WriteAttribute(file, "dump_version", kDumpVersion);
        hdf5::WriteAttribute(file, "run", dump.run);
        hdf5::WriteAttribute(file, "step", dump.step);
        for (const DumpedTensor& tensor : dump.tensors) {
          TensorWriter writer(file, tensor.name);
          VisitTensor(writer, tensor);
        }
        const std::vector<std::string> names = dump.TensorNames();
        const hdf5::Handle list = hdf5::CreateDataset(
            file, "names", hdf5::TypeOf<std::string>(), Extent{names.size()});
        hdf5::WriteDataset<std::string>(list, names);
        WriteColumns(file, std::string(hdf5::kTensorDumpFile.name),
                     GraphWithVersion(), View(dump.graph));
      });
}

TensorDump ReadTensorDump(const fs::path& path) {
  TensorDump dump;
  hdf5::ReadCharge charge = hdf5::ReadSealedFile(
      path, hdf5::kTensorDumpFile,
      [&](const hdf5::Object& root) { dump = Read(root, path.string()); });
  dump.charge = std::move(charge);
  return dump;
}

}  // namespace isoloss::runlog
