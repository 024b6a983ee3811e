#include "isoloss/operations/arithmetic_search.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "isoloss/operations/predicted_sums.h"
#include "isoloss/operations/probed_product.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::operations {
namespace {

constexpr int64_t kMoreThanFp32 = 3;
/// An arithmetic may miss one of so many probes that FP32 sums explain.
constexpr int64_t kProbesOfMiss = 100;
/// Kernels for Hopper add FP8 sums to FP32 ones after so many steps.
constexpr size_t kPromotion = 128;

bool HoldsBf16(const Side& side) {
  if (side.quantization) return true;
  for (size_t i = 0; i < side.values.rows(); ++i) {
    const float* row = side.values.Row(i);
    if (!std::all_of(row, row + side.values.cols(), [](float value) {
          return (std::bit_cast<uint32_t>(value) & 0xFFFF) == 0;
        })) {
      return false;
    }
  }
  return true;
}

/// Powers of two do not change what an adder cuts off, whether they are stored
/// in E8M0 or in FP32.
std::optional<formats::Quantization> WithE8m0(
    std::optional<formats::Quantization> quantization) {
  if (quantization &&
      quantization->scale_format == formats::ScaleFormat::kPow2) {
    quantization->scale_format = formats::ScaleFormat::kE8m0;
    quantization->scale_rule = formats::ScaleRule::kRceil;
  }
  return quantization;
}

bool CutsEvery(size_t steps, const ProductGroup& group) {
  const auto cuts = [steps](const Side& side) {
    return side.quantization && side.quantization->scales_sums() &&
           side.quantization->cell.cols == steps;
  };
  return cuts(group.left) || cuts(group.right);
}

/// Returns the adders that multiply such factors, in each way of promotion and
/// of scaling that is in use.
std::vector<Arithmetic> CandidatesFor(const Product& product) {
  const ProductGroup& group = product.groups.front();
  const bool scales_rows = PredictedSums::ScalesRows(group);
  const bool scales_pieces = PredictedSums::ScalesPieces(group);
  const bool cuts_sums = CutsEvery(kPromotion, group);
  std::vector<Arithmetic> candidates;
  for (const kernels::Accumulator* accumulator : kernels::AllAccumulators()) {
    precision::GemmPrecision precision;
    precision.left = WithE8m0(group.left.quantization);
    precision.right = WithE8m0(group.right.quantization);
    for (const size_t interval : {size_t{0}, kPromotion}) {
      precision.accumulation = {accumulator, interval};
      const bool may_promote = Arithmetic{precision.accumulation}.is_coarse();
      if (interval > 0 && !may_promote) continue;
      // Scales of blocks promote anyway.
      if (interval == 0 && may_promote && cuts_sums) continue;
      if (!WrongPrecision(precision, product.role).empty()) continue;
      candidates.push_back({precision.accumulation});
      for (const ResultScale scale :
           {ResultScale::kPieceLeft, ResultScale::kPieceApart,
            ResultScale::kPieceLeftApart}) {
        if (scales_pieces) {
          candidates.push_back({precision.accumulation, scale});
        }
      }
      if (!scales_rows) continue;
      for (const ResultScale scale :
           {ResultScale::kProduct, ResultScale::kLeft, ResultScale::kRight}) {
        candidates.push_back({precision.accumulation, scale});
      }
    }
  }
  return candidates;
}

/// Is the arithmetic that predicts most probes, and those that predict as many.
struct Election {
  Arithmetic arithmetic;
  std::vector<Arithmetic> alike;
};

/// Returns whether so many matches of all probes are no chance: another order
/// of sums seldom gives half of the bits that hang on it.
bool SaysMuchMore(int64_t matches, int64_t fp32_matches, int64_t probes) {
  return 2 * matches >= probes && 4 * (matches - fp32_matches) >= probes;
}

/// Says how well each candidate predicts one product.
struct Evidence {
  std::vector<Arithmetic> candidates = {};
  std::vector<Score> scores = {};
  int64_t fp32_matches = 0;
  int64_t probes = 0;
  bool is_fp32 = false;  ///< the grid

  /// A sick processor may spoil a quarter of the probes, but seldom by as
  /// little as FP32 sums do. If other sums move most results, it may spoil half
  /// of them by anything.
  bool Fits(const Arithmetic& arithmetic) const {
    const auto place = std::ranges::find(candidates, arithmetic);
    if (place == candidates.end()) return false;
    const Score& score =
        scores[static_cast<size_t>(place - candidates.begin())];
    const bool others_move_most = is_fp32 || arithmetic.is_coarse();
    return (4 * score.matches >= 3 * probes &&
            kProbesOfMiss * score.misses <= probes) ||
           (others_move_most &&
            SaysMuchMore(score.matches, fp32_matches, probes));
  }
};

Evidence EvidenceOf(const Product& product) {
  Evidence evidence;
  if (product.groups.empty() || product.output.empty()) return evidence;
  if (product.arithmetic.has_bits()) return evidence;  // the recipe declares it
  const bool holds_bf16 =
      std::ranges::all_of(product.groups, [](const ProductGroup& group) {
        return HoldsBf16(group.left) && HoldsBf16(group.right);
      });
  if (!holds_bf16) return evidence;
  std::vector<Arithmetic> candidates = CandidatesFor(product);
  if (candidates.empty()) return evidence;
  ProbedProduct probed(product);
  probed.ChooseProbes(candidates.front());
  evidence.fp32_matches = probed.Fp32Matches(candidates);
  evidence.probes = static_cast<int64_t>(probed.size());
  evidence.is_fp32 = product.grid == oracle::Grid::kFp32;
  for (const Arithmetic& candidate : candidates) {
    evidence.scores.push_back(probed.ScoreOf(candidate));
  }
  evidence.candidates = std::move(candidates);
  return evidence;
}

/// Products vote together if their factors are of one kind.
class Votes {
 public:
  void Add(const Evidence& evidence) {
    if (std::ranges::none_of(evidence.candidates, [&](const Arithmetic& each) {
          return evidence.Fits(each);
        })) {
      return;
    }
    fp32_matches_ += evidence.fp32_matches;
    probes_ += evidence.probes;
    for (size_t i = 0; i < evidence.candidates.size(); ++i) {
      Score& sum = ScoreOf(evidence.candidates[i]);
      sum.matches += evidence.scores[i].matches;
      sum.misses += evidence.scores[i].misses;
    }
  }
  /// If several are equally good, the first one counts.
  std::optional<Election> Elected() const {
    const auto best = std::ranges::max_element(
        scores_, {}, [](const auto& entry) { return entry.second.matches; });
    if (best == scores_.end() ||
        best->second.matches < fp32_matches_ + kMoreThanFp32 ||
        (best->second.matches < kProbesOfMiss * best->second.misses &&
         !SaysMuchMore(best->second.matches, fp32_matches_, probes_))) {
      return std::nullopt;
    }
    Election election = {best->first, {}};
    for (const auto& [other, score] : scores_) {
      if (score.matches == best->second.matches && !(other == best->first) &&
          score.misses == best->second.misses) {
        election.alike.push_back(other);
      }
    }
    return election;
  }

 private:
  Score& ScoreOf(const Arithmetic& arithmetic) {
    for (auto& [known, score] : scores_) {
      if (known == arithmetic) return score;
    }
    return scores_.emplace_back(arithmetic, Score()).second;
  }

  std::vector<std::pair<Arithmetic, Score>> scores_;
  int64_t fp32_matches_ = 0;
  int64_t probes_ = 0;
};

bool IsQuantized(const Product& product) {
  return product.groups.front().left.quantization.has_value() ||
         product.groups.front().right.quantization.has_value();
}

/// Returns the candidate that predicts most if it says more than FP32 sums do.
std::optional<Election> OwnArithmetic(const Evidence& evidence) {
  Votes votes;
  votes.Add(evidence);
  auto elected = votes.Elected();
  return elected && evidence.Fits(elected->arithmetic) ? elected : std::nullopt;
}

/// Forgets what was elected, but predicts no product.
void KeepUsed(std::vector<SumsOfProduct>& found) {
  std::vector<Arithmetic> used;
  for (const SumsOfProduct& sums : found) used.push_back(sums.arithmetic);
  for (SumsOfProduct& sums : found) {
    std::erase_if(sums.of_others, [&](const Arithmetic& other) {
      return std::ranges::find(used, other) == used.end();
    });
  }
}

void AddOnce(const Arithmetic& arithmetic, std::vector<Arithmetic>& list) {
  if (std::ranges::find(list, arithmetic) == list.end()) {
    list.push_back(arithmetic);
  }
}

}  // namespace

std::vector<Arithmetic> FindSplits(const Product& product,
                                   const Arithmetic& of_others) {
  ProbedProduct probed(product);
  probed.ChooseProbes(of_others);
  return probed.FindSplits(of_others);
}

std::vector<SumsOfProduct> FindSums(std::span<const Product> products,
                                    Executor& executor,
                                    const std::function<void()>& done) {
  std::vector<Evidence> evidence(products.size());
  executor.ParallelFor(products.size(), [&](size_t i) {
    evidence[i] = EvidenceOf(products[i]);
    done();
  });
  // Forward and backward passes of one trainer may promote differently.
  std::map<std::pair<bool, int>, Votes> of_role;
  std::map<bool, Votes> of_kind;
  for (size_t i = 0; i < products.size(); ++i) {
    if (products[i].groups.empty()) continue;
    const bool kind = IsQuantized(products[i]);
    of_role[{kind, static_cast<int>(products[i].role)}].Add(evidence[i]);
    of_kind[kind].Add(evidence[i]);
  }
  std::vector<SumsOfProduct> found(products.size());
  executor.ParallelFor(products.size(), [&](size_t i) {
    const Evidence& own = evidence[i];
    if (own.candidates.empty()) return;
    const bool kind = IsQuantized(products[i]);
    SumsOfProduct& sums = found[i];
    std::ranges::copy_if(own.candidates, std::back_inserter(sums.possible),
                         &Arithmetic::is_coarse);
    std::vector<Election> elections;
    const auto elect = [&](const Votes& votes) {
      if (auto elected = votes.Elected()) {
        AddOnce(elected->arithmetic, sums.of_others);
        elections.push_back(std::move(*elected));
      }
    };
    const auto role = static_cast<int>(products[i].role);
    elect(of_role.at({kind, role}));
    elect(of_kind.at(kind));
    for (const auto& [key, votes] : of_role) {
      if (key.first == kind) elect(votes);
    }
    const auto use = [&sums](const Election& election) {
      sums.arithmetic = election.arithmetic;
      sums.alike = election.alike;
    };
    for (const Election& election : elections) {
      if (own.Fits(election.arithmetic)) return use(election);
    }
    if (const auto other = OwnArithmetic(own)) return use(*other);
  });
  KeepUsed(found);
  return found;
}

}  // namespace isoloss::operations
