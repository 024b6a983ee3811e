#include "isoloss/operations/deviation_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include "isoloss/base/grouped.h"
#include "isoloss/base/portable_math.h"
#include "isoloss/operations/deviation_places.h"

namespace isoloss::operations {
namespace {

using oracle::Grid;
using portable::Log;
using Bits = Deviations::Bits;

/// Returns an upper bound of the logarithm of the probability that at least k
/// of n have a property of probability p. Source: Chernoff's bound, which is
/// p^n for k = n.
double LogTail(int64_t n, int64_t k, double p) {
  const double share = static_cast<double>(k) / static_cast<double>(n);
  if (share <= p) return 0.0;
  double divergence = share * Log(share / p);
  if (k < n) divergence += (1.0 - share) * Log((1.0 - share) / (1.0 - p));
  return -static_cast<double>(n) * divergence;
}

// A bit is told if all deviations, or nine tenths of them, differ in it alone,
// and that can hardly be chance. Two accidents are no fault of one bit. Bits
// may flip anywhere; then each of W bits has a probability of 1/W. Or another
// order of sums moves a result by a unit of some partial sum. If results are
// any fraction of such sums, that is 2^b units of the result or more with a
// probability of 2^-b. Half of such moves carry into the next bit. So
// p = max(1/W, 2^-(b+1)), and some bit of W holds k of n deviations with at
// most W times Chernoff's bound.
double AccidentOf(size_t bit, size_t width) {
  return std::max(1.0 / static_cast<double>(width),
                  std::ldexp(0.5, -static_cast<int>(bit)));
}

struct BitPattern {
  std::string clause = {};  ///< "all in bit 21"
  bool is_of_all = false;
  /// It is the last place, by which no other order of sums moves all.
  bool is_lowest = false;
};

std::string DirectionOf(const Bits& bits, size_t bit, int64_t count) {
  // If half of the predicted bits are 0, all go one way with 2 * 2^-n.
  if (count > 1 &&
      static_cast<double>(count - 1) * Log(0.5) > Log(kPatternChance)) {
    return "";
  }
  const char* word = count == 1 ? "" : "always ";
  if (bits.up[bit] == count) return fmt::format(", {}from 0 to 1", word);
  if (bits.down[bit] == count) return fmt::format(", {}from 1 to 0", word);
  return "";
}

/// Returns the clause on the bits of the only deviation.
std::string BitsOfOne(const Bits& bits) {
  std::vector<std::string> differing;
  size_t last = 0;
  for (size_t bit = 0; bit < Deviations::kMostBits; ++bit) {
    if (bits.up[bit] + bits.down[bit] == 0) continue;
    differing.push_back(fmt::format("{}", bit));
    last = bit;
  }
  if (differing.size() == 1) {
    return fmt::format("in bit {}{}", last, DirectionOf(bits, last, 1));
  }
  constexpr size_t kListed = 4;
  if (differing.size() <= kListed) {
    return "in bits " + ListOf(differing, kListed);
  }
  return fmt::format("in {} bits up to bit {}", differing.size(), last);
}

BitPattern FindBits(const Bits& bits, int64_t count, Grid grid) {
  if (count == 1) return {.clause = BitsOfOne(bits), .is_of_all = true};
  const size_t width = grid == Grid::kFp32 ? 32 : 16;
  const auto most = std::ranges::max_element(bits.alone);
  const auto bit = static_cast<size_t>(std::distance(bits.alone.begin(), most));
  const double log_chance = Log(static_cast<double>(width)) +
                            LogTail(count, *most, AccidentOf(bit, width));
  if (10 * (count - *most) <= count && log_chance <= Log(kPatternChance)) {
    const bool is_of_all = *most == count;
    return {.clause = is_of_all ? fmt::format("all in bit {}{}", bit,
                                              DirectionOf(bits, bit, count))
                                : fmt::format("{} of them in bit {} alone",
                                              Grouped(*most), bit),
            .is_of_all = is_of_all,
            .is_lowest = bit == 0};
  }
  int64_t single = 0;
  for (const int64_t alone : bits.alone) single += alone;
  // Half of all moves by some units carry into the next bit.
  if (single == count && LogTail(count, count, 0.5) <= Log(kPatternChance)) {
    return {.clause = "each in exactly one bit"};
  }
  return {};
}

/// Joins clauses to sentences of at most 30 words.
class Sentences {
 public:
  explicit Sentences(std::string begin) : text_(std::move(begin)) {}

  /// Appends ", clause", or begins the sentence "All lie clause". `all` stands
  /// before the clause only where it does not begin a sentence.
  void Append(const std::string& clause, const std::string& all = "") {
    constexpr int64_t kMostWords = 30;
    const std::string joined = all + clause;
    if (words_ + WordsOf(joined) > kMostWords) {
      text_ += ". All lie " + clause;
      words_ = WordsOf("All lie " + clause);
    } else {
      text_ += ", " + joined;
      words_ += WordsOf(joined);
    }
  }
  std::string End() const { return text_ + "."; }

 private:
  static int64_t WordsOf(const std::string& text) {
    return std::ranges::count(text, ' ') + 1;
  }

  std::string text_;
  int64_t words_ = WordsOf(text_);
};

std::string Main(const std::string& begin, const BitPattern& bits,
                 const std::vector<std::string>& places) {
  Sentences sentences(begin);
  if (!bits.clause.empty()) sentences.Append(bits.clause);
  const char* all = bits.is_of_all ? "" : "all ";
  for (const std::string& place : places) {
    sentences.Append(place, all);
    all = "";
  }
  return sentences.End();
}

/// A remark says that another order of sums may have moved the elements.
std::string UnitRemark(const Bits& bits, int64_t count,
                       const BitPattern& pattern) {
  if (pattern.is_lowest || 10 * (count - bits.one_unit) > count) return "";
  const std::string subject = count == 1 ? "It differs"
                              : bits.one_unit == count
                                  ? "All differ"
                                  : Grouped(bits.one_unit) + " of them differ";
  return subject +
         " by one unit in the last place, which may be another order of sums, "
         "and no sick GPU.";
}

std::string PlacesRemark(const Deviations& deviations, bool has_pattern) {
  const FewPlaces& elements = deviations.squares()[0];
  if (!elements.are_few()) {
    return has_pattern ? "" : "They are spread over the result.";
  }
  const std::string places = ListOf(PlacesText(elements, 1), FewPlaces::kMost);
  return has_pattern
             ? fmt::format("They are at (row, column) {}.", places)
             : fmt::format("Their places (row, column) follow no pattern: {}.",
                           places);
}

std::string Joined(std::initializer_list<std::string> sentences) {
  std::string text;
  for (const std::string& sentence : sentences) {
    if (!sentence.empty()) text += (text.empty() ? "" : " ") + sentence;
  }
  return text;
}

}  // namespace

std::string PatternText(const Deviations& deviations, int64_t elements) {
  const int64_t count = deviations.count();
  if (count == 0) return "";
  const BitPattern bits = FindBits(deviations.bits(), count, deviations.grid());
  const std::string begin = fmt::format(
      "{} element{} of {} differ{} from the predicted bits", Grouped(count),
      count == 1 ? "" : "s", Grouped(elements), count == 1 ? "s" : "");
  if (count == 1) {
    return Joined(
        {Main(begin, bits,
              {fmt::format("at row {}, column {}", deviations.rows().first,
                           deviations.columns().first)}),
         UnitRemark(deviations.bits(), count, bits)});
  }
  const std::vector<std::string> clauses = PlaceClauses(deviations);
  return Joined({Main(begin, bits, clauses),
                 PlacesRemark(deviations, !clauses.empty()),
                 UnitRemark(deviations.bits(), count, bits)});
}

bool HaveOneBit(const Deviations& deviations) {
  return deviations.count() > 1 &&
         !FindBits(deviations.bits(), deviations.count(), deviations.grid())
              .clause.empty();
}

bool LookSick(const Deviations& deviations, int64_t elements) {
  constexpr int64_t kFew = 1000;  // one of so many
  return kFew * deviations.count() <= elements || HaveOneBit(deviations) ||
         !PlaceClauses(deviations).empty();
}

std::string CommonPatternText(std::span<const Deviations* const> results,
                              int64_t elements) {
  std::vector<const Deviations*> differing;
  std::ranges::copy_if(
      results, std::back_inserter(differing),
      [](const Deviations* result) { return result->count() > 0; });
  if (differing.size() < 2) return "";
  Bits bits;
  int64_t count = 0;
  for (const Deviations* result : differing) {
    bits.Merge(result->bits());
    count += result->count();
  }
  const Grid grid = differing[0]->grid();
  const bool has_one_grid = std::ranges::all_of(
      differing,
      [grid](const Deviations* result) { return result->grid() == grid; });
  const BitPattern pattern =
      has_one_grid ? FindBits(bits, count, grid) : BitPattern{};
  const std::vector<std::string> clauses = CommonPlaceClauses(differing);
  if (pattern.clause.empty() && clauses.empty()) return "";
  return Main(fmt::format("{} elements of {} in {} products differ from the "
                          "predicted bits",
                          Grouped(count), Grouped(elements), differing.size()),
              pattern, clauses);
}

}  // namespace isoloss::operations
