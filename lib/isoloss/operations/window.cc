#include "isoloss/operations/window.h"

#include <algorithm>
#include <utility>

namespace isoloss::operations {
namespace {

constexpr size_t kWindow = 32;

/// Returns rows [first, first + kWindow) of a tensor; cells are of single rows.
oracle::ScalarTensor RowsOf(const oracle::ScalarTensor& tensor, size_t first,
                            size_t count) {
  oracle::ScalarTensor part;
  part.cell_cols = tensor.cell_cols;
  part.tensor_scale = tensor.tensor_scale;
  part.elements.ResizeUninitialized(count, tensor.elements.cols());
  part.codes.ResizeUninitialized(count, tensor.codes.cols());
  for (size_t r = 0; r < count; ++r) {
    std::copy_n(tensor.elements.Row(first + r), part.elements.cols(),
                part.elements.Row(r));
    std::copy_n(tensor.codes.Row(first + r), part.codes.cols(),
                part.codes.Row(r));
    for (size_t c = 0; c < part.codes.cols(); c += part.cell_cols) {
      part.scales.push_back(tensor.ScaleAt(first + r, c));
    }
  }
  return part;
}

/// Cuts an operand to a window, after all of it was quantised. Returns false if
/// its change has nothing to change.
bool Cut(size_t first, Side& side) {
  if (!side.Fix()) return false;
  const size_t count = std::min(kWindow, side.extent() - first);
  if (side.fixed != nullptr) {
    side.fixed = std::make_shared<const oracle::ScalarTensor>(
        RowsOf(*side.fixed, first, count));
  }
  side.values = side.down ? side.values.Cols(first, count)
                          : side.values.Rows(first, count);
  return true;
}

}  // namespace

std::optional<oracle::Comparison> CompareAltered(const Product& product,
                                                 const AlterSide& alter,
                                                 Which which) {
  Product altered = product;
  bool any = false;
  for (ProductGroup& group : altered.groups) {
    const bool left = which != Which::kRight && alter(group.left);
    const bool right = which != Which::kLeft && alter(group.right);
    if (which == Which::kBoth && left != right) return std::nullopt;
    any = any || left || right;
  }
  return any ? Compare(altered) : std::nullopt;
}

std::shared_ptr<const Sample> SampleOf(const Product& product,
                                       const oracle::Comparison& found) {
  const runlog::OracleRow worst = found.Row();
  if (worst.other == 0 || worst.worst_row < 0 ||
      product.output.rows() * product.output.cols() <= 2 * kWindow * kWindow) {
    return nullptr;
  }
  const auto row = static_cast<size_t>(worst.worst_row);
  auto sample =
      std::make_shared<Sample>(Sample{product, product.groups.size()});
  for (size_t g = 0; g < product.groups.size(); ++g) {
    const ProductGroup& each = product.groups[g];
    if (each.first_row <= row && row - each.first_row < each.left.extent()) {
      sample->group = g;
    }
  }
  if (sample->group == product.groups.size()) return nullptr;
  Product& part = sample->product;
  part.groups = {product.groups[sample->group]};
  ProductGroup& cut = part.groups[0];
  const size_t in_group = (row - cut.first_row) / kWindow * kWindow;
  const size_t column =
      static_cast<size_t>(worst.worst_column) / kWindow * kWindow;
  sample->first = {in_group, column};
  if (!Cut(in_group, cut.left) || !Cut(column, cut.right)) return nullptr;
  part.output = product.output.Rows(cut.first_row + in_group, cut.left.extent())
                    .Cols(column, cut.right.extent());
  if (part.bias != nullptr) part.bias += column;
  cut.first_row = 0;
  const auto comparison = Compare(part);
  if (!comparison) return nullptr;
  sample->other = comparison->other();
  return sample;
}

std::optional<oracle::Comparison> CompareOnWindow(const Product& product,
                                                  const Sample* sample,
                                                  const AlterSide& alter,
                                                  Which which) {
  if (sample == nullptr) return CompareAltered(product, alter, which);
  Product altered = sample->product;
  const ProductGroup& whole = product.groups[sample->group];
  bool any = false;
  const auto make = [&](const Side& from, size_t first, Side& side) {
    Side changed = from;
    if (!alter(changed)) return true;
    any = true;
    if (!Cut(first, changed)) return false;
    side = std::move(changed);
    return true;
  };
  if ((which != Which::kRight &&
       !make(whole.left, sample->first[0], altered.groups[0].left)) ||
      (which != Which::kLeft &&
       !make(whole.right, sample->first[1], altered.groups[0].right))) {
    return std::nullopt;
  }
  return any ? Compare(altered) : std::nullopt;
}

bool FailsOnWindow(const Product& product, const Sample* sample,
                   const AlterSide& alter, Which which) {
  if (sample == nullptr) return false;
  const auto comparison = CompareOnWindow(product, sample, alter, which);
  return comparison && 2 * comparison->other() > sample->other;
}

}  // namespace isoloss::operations
