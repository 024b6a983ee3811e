#include "isoloss/operations/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/operations/product.h"
#include "isoloss/oracle/scalar_operand.h"

namespace isoloss::operations {
namespace {

using precision::GemmRole;

/// Each axis of a group's result has so many samples at most.
constexpr size_t kSamples = 24;
/// Rounding to BF16 moves results by 2^-9 at most, and E4M3 by some 2 %.
constexpr double kFarther = 4.0;

struct Kind {
  QuantizedOperands operands;
  bool left;
  bool right;
};
constexpr Kind kKinds[] = {{QuantizedOperands::kBoth, true, true},
                           {QuantizedOperands::kNeither, false, false},
                           {QuantizedOperands::kLeftOnly, true, false},
                           {QuantizedOperands::kRightOnly, false, true}};
constexpr size_t kBoth = 0;
constexpr size_t kNeither = 1;

/// Sums squares of the distances of the recorded results from each kind's.
struct Distances {
  double squares[std::size(kKinds)] = {};
  /// The kind has results of its own.
  bool is_possible[std::size(kKinds)] = {};
  double between = 0.0;  ///< of both kinds that are all or nothing
  size_t samples = 0;
  bool has_codes = false;
};

/// Computes single results of a group in double precision.
class Results {
 public:
  Results(const ProductGroup& group, const Kind& kind) {
    Side left = group.left;
    Side right = group.right;
    for (auto [side, is_quantized] :
         {std::pair{&left, kind.left}, std::pair{&right, kind.right}}) {
      if (is_quantized) continue;
      side->quantization.reset();
      side->before.reset();
    }
    const oracle::ScalarOperand a = OperandOf(left);
    const oracle::ScalarOperand b = OperandOf(right);
    pieces_ =
        oracle::PiecesOf(a.quantization, b.quantization, 0, {}, left.depth());
    a_ = oracle::PrepareSide(a, pieces_, nullptr);
    b_ = oracle::PrepareSide(b, pieces_, nullptr);
  }

  double At(size_t row, size_t col) const {
    double total = 0.0;
    for (size_t p = 0; p < pieces_.pieces.size(); ++p) {
      double sum = 0.0;
      for (size_t k = pieces_.pieces[p].begin; k < pieces_.pieces[p].end; ++k) {
        sum += static_cast<double>(a_.values(row, k)) *
               static_cast<double>(b_.values(col, k));
      }
      total += sum * static_cast<double>(a_.Factor(row, p)) *
               static_cast<double>(b_.Factor(col, p));
    }
    return total;
  }

 private:
  oracle::ScalarPieces pieces_;
  oracle::PreparedSide a_;
  oracle::PreparedSide b_;
};

/// Spreads at most kSamples places over an axis.
size_t SampledIndex(size_t sample, size_t samples, size_t extent) {
  return (2 * sample + 1) * extent / (2 * samples);
}

/// Returns whether the kind differs from all kinds before it. Both operands are
/// transformed, or none.
bool IsKindOf(const ProductGroup& group, const Kind& kind) {
  const auto& left = group.left.quantization;
  const auto& right = group.right.quantization;
  if (kind.left == kind.right) return left || right;
  return left && right && !left->transforms() && !right->transforms();
}

void AddGroup(const Product& product, const ProductGroup& group,
              Distances& distances) {
  const size_t rows = group.left.extent();
  const size_t cols = group.right.extent();
  const size_t row_samples = std::min(rows, kSamples);
  const size_t col_samples = std::min(cols, kSamples);
  std::vector<double> all[std::size(kKinds)];
  for (size_t k = 0; k < std::size(kKinds); ++k) {
    if (!IsKindOf(group, kKinds[k])) continue;
    const Results results(group, kKinds[k]);
    for (size_t i = 0; i < row_samples; ++i) {
      const size_t row = SampledIndex(i, row_samples, rows);
      for (size_t j = 0; j < col_samples; ++j) {
        const size_t col = SampledIndex(j, col_samples, cols);
        const double bias = product.bias == nullptr
                                ? 0.0
                                : static_cast<double>(product.bias[col]);
        const double due = results.At(row, col) + bias;
        const double off = due - static_cast<double>(product.output(
                                     group.first_row + row, col));
        if (!std::isfinite(off)) continue;
        distances.squares[k] += off * off;
        distances.is_possible[k] = true;
        all[k].push_back(due);
      }
    }
  }
  distances.samples += all[kBoth].size();
  for (size_t i = 0; i < std::min(all[kBoth].size(), all[kNeither].size());
       ++i) {
    distances.between += std::fabs(all[kBoth][i] - all[kNeither][i]);
  }
}

bool NeedsState(const ProductGroup& group) {
  return std::ranges::any_of(
      std::initializer_list<const Side*>{&group.left, &group.right},
      [](const Side* side) {
        return side->quantization && oracle::NeedsState(*side->quantization);
      });
}

/// Finds the kind that the results tell.
void Decide(const Distances& distances, ProductAudit& audit) {
  audit.evidence = AuditEvidence::kDeclared;
  if (distances.has_codes) {
    audit.found = QuantizedOperands::kBoth;
    audit.evidence = AuditEvidence::kCodes;
  }
  if (distances.samples == 0) return;
  if (distances.between == 0.0) {
    if (distances.has_codes) return;
    audit.found = QuantizedOperands::kBoth;
    audit.evidence = AuditEvidence::kGrid;
    return;
  }
  std::optional<size_t> best;
  for (size_t k = 0; k < std::size(kKinds); ++k) {
    if (!distances.is_possible[k]) continue;
    if (!best || distances.squares[k] < distances.squares[*best]) best = k;
  }
  bool is_clear = best.has_value();
  for (size_t k = 0; k < std::size(kKinds); ++k) {
    if (!distances.is_possible[k] || k == *best) continue;
    is_clear = is_clear && distances.squares[k] >
                               kFarther * kFarther * distances.squares[*best];
  }
  audit.found = is_clear ? kKinds[*best].operands : QuantizedOperands::kOther;
  audit.evidence = AuditEvidence::kResults;
}

using DistancesByProduct =
    std::map<std::pair<std::string, GemmRole>, Distances>;

/// Tries a module that patterns leave out under the recipe's formats.
void AddOperation(const OperationFile& file, size_t index,
                  const ModuleChoice& choice, const precision::Recipe& recipe,
                  DistancesByProduct& found) {
  const Operation& operation = file.operations[index];
  for (const GemmRole role : precision::kGemmRoles) {
    for (const LinearOperand& operand : OperandsOf(role)) {
      if (operation.FindCodes(fmt::format("{}_codes", operand.name)) !=
          nullptr) {
        found[{operation.module, role}].has_codes = true;
      }
    }
  }
  const OperationCase given = CaseOf(file, index);
  const precision::LinearPrecision& precision =
      choice.quantized ? choice.precision : recipe;
  for (const Product& product : LinearProductsOf(given, {precision, recipe})) {
    Distances& distances = found[{operation.module, product.role}];
    for (const ProductGroup& group : product.groups) {
      if (!NeedsState(group)) AddGroup(product, group, distances);
    }
  }
}

}  // namespace

bool ProductAudit::contradicts() const {
  // Values may lie on a grid by chance, and findings judge what is no kind.
  return evidence > AuditEvidence::kGrid &&
         found != QuantizedOperands::kOther &&
         found != (is_expected ? QuantizedOperands::kBoth
                               : QuantizedOperands::kNeither);
}

bool ModuleAudit::has_evidence() const {
  return std::ranges::any_of(products, [](const ProductAudit& product) {
    return product.evidence > AuditEvidence::kDeclared;
  });
}

std::vector<ModuleAudit> AuditModules(const std::vector<OperationFile>& files,
                                      const precision::Recipe& recipe,
                                      const CheckOptions& options) {
  if (!recipe.quantizes()) {
    ThrowError(
        ErrorKind::kConfig,
        "recipe {}: quantises nothing, so that it has no formats to look "
        "for. Give the recipe that modules may follow.",
        recipe.name);
  }
  const ModuleChoices choices(files, recipe, options);
  DistancesByProduct found;
  for (const OperationFile& file : files) {
    for (size_t i = 0; i < file.operations.size(); ++i) {
      if (!file.operations[i].is_linear()) continue;
      AddOperation(file, i, choices.ByPatterns(file.operations[i].module),
                   recipe, found);
    }
  }
  std::vector<ModuleAudit> audits;
  for (const ModuleChoice& choice : choices.all()) {
    ModuleAudit& audit = audits.emplace_back(
        ModuleAudit{.choice = choices.ByPatterns(choice.module)});
    for (const GemmRole role : precision::kGemmRoles) {
      ProductAudit& product = audit.products[static_cast<size_t>(role)];
      product.is_expected = audit.choice.precision.For(role).quantized();
      Decide(found[{choice.module, role}], product);
    }
  }
  return audits;
}

}  // namespace isoloss::operations
