#include "isoloss/operations/group_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace isoloss::operations {
namespace {

/// Two mistakes join blocks of groups.
struct JoinedBlocks {
  const char* name;
  const char* sentence;
  bool turned;  ///< along the axis that is not the recipe's
};
constexpr JoinedBlocks kJoinedBlocks[] = {
    {"blocks_across_groups",
     "blocks of {} ran on over the ends of groups, and did not begin anew",
     false},
    {"other_axis_across_groups",
     "blocks of {} lay along the other axis, over the ends of groups", true},
};

/// Returns whether the mistake can occur. Blocks along rows never cross groups,
/// but one block, or one scale, may be that of all groups.
bool CanBe(const JoinedBlocks& mistake, const Side& side) {
  if (!side.quantization || side.before) return false;
  // One scale of a tensor has no axis.
  if (mistake.turned && side.quantization->cell == formats::Cell{0, 0}) {
    return false;
  }
  const bool spans_groups =
      !mistake.turned &&
      (side.quantization->cell.rows == 0 || side.quantization->scales_tensor());
  return spans_groups || side.down != mistake.turned;
}

std::vector<const Side*> SidesOf(const Product& product, bool left) {
  std::vector<const Side*> sides;
  for (const ProductGroup& group : product.groups) {
    sides.push_back(left ? &group.left : &group.right);
  }
  return sides;
}

/// Makes the mistake in one operand of all groups.
bool Join(const JoinedBlocks& mistake, bool left, Product& product) {
  std::optional<Side> joined = JoinedSide(SidesOf(product, left));
  // Recorded codes are those of single groups.
  if (!joined || joined->is_recorded || !CanBe(mistake, *joined)) return false;
  joined->fixed.reset();
  if (mistake.turned) joined->down = !joined->down;
  const std::optional<oracle::ScalarTensor> tensor = Quantized(*joined);
  if (!tensor) return false;
  Matrix<float> values = oracle::ScalarDequantize(*tensor, joined->depth());
  if (joined->down) values = Transposed(values.cview());
  size_t first = 0;
  for (ProductGroup& group : product.groups) {
    Side& side = left ? group.left : group.right;
    const size_t rows = side.values.rows();
    Matrix<float> part(rows, values.cols());
    for (size_t r = 0; r < rows; ++r) {
      std::copy_n(values.Row(first + r), values.cols(), part.Row(r));
    }
    side.Own(std::move(part));
    side.quantization.reset();
    side.fixed.reset();
    first += rows;
  }
  return true;
}

}  // namespace

std::optional<Side> JoinedSide(const std::vector<const Side*>& sides) {
  if (sides.size() < 2) return std::nullopt;
  const MatrixView<const float>& first = sides[0]->values;
  size_t rows = 0;
  for (const Side* side : sides) {
    const MatrixView<const float>& values = side->values;
    if (values.cols() != first.cols() || values.stride() != first.stride() ||
        (values.rows() > 0 &&
         values.data() != first.data() + rows * first.stride())) {
      return std::nullopt;
    }
    rows += values.rows();
  }
  Side joined = *sides[0];
  joined.values = {first.data(), rows, first.cols(), first.stride()};
  joined.previous.reset();
  joined.previous_call.reset();
  return joined;
}

std::vector<Trial> TrialsOfJoinedBlocks(const Product& product,
                                        const std::string& left,
                                        const std::string& right) {
  std::vector<Trial> trials;
  if (product.groups.size() < 2) return trials;
  for (const JoinedBlocks& mistake : kJoinedBlocks) {
    const auto add = [&](const std::string& name, const std::string& who,
                         bool in_left, bool in_right) {
      trials.push_back(
          {.name = fmt::format("{}.{}", mistake.name, name),
           .sentence = fmt::format(fmt::runtime(mistake.sentence), who),
           .compare = [&product, &mistake, in_left,
                       in_right]() -> std::optional<oracle::Comparison> {
             Product altered = product;
             if (in_left && !Join(mistake, true, altered)) return std::nullopt;
             if (in_right && !Join(mistake, false, altered)) {
               return std::nullopt;
             }
             return Compare(altered);
           },
           .in_both = in_left && in_right});
    };
    add(left, left, true, false);
    add(right, right, false, true);
    add("both", "each operand", true, true);
  }
  return trials;
}

std::vector<Trial> TrialsOfJoinedBlocks(const std::vector<const Side*>& sides,
                                        const std::string& name,
                                        const Codes& codes,
                                        const Scales& scales, CodePart part) {
  std::vector<Trial> trials;
  if (sides.size() < 2) return trials;
  for (const JoinedBlocks& mistake : kJoinedBlocks) {
    trials.push_back(
        {.name = fmt::format("{}.{}", mistake.name, name),
         .sentence = fmt::format(fmt::runtime(mistake.sentence), name),
         .compare = [&sides, &mistake, &codes, &scales,
                     part]() -> std::optional<oracle::Comparison> {
           std::optional<Side> joined = JoinedSide(sides);
           if (!joined || !CanBe(mistake, *joined)) return std::nullopt;
           if (mistake.turned) joined->down = !joined->down;
           const auto comparison = CompareCodes({&*joined}, codes, scales);
           return comparison ? std::optional(part(*comparison)) : std::nullopt;
         }});
  }
  return trials;
}

}  // namespace isoloss::operations
