// Writes what an audit found of linear modules.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <vector>

#include "isoloss/base/printable.h"
#include "isoloss/document/text_layout.h"
#include "isoloss/inspection/check_tensors.h"

namespace isoloss::inspection {
namespace {

using operations::AuditEvidence;
using operations::ModuleAudit;
using operations::ProductAudit;
using operations::QuantizedOperands;
using precision::GemmRole;

const ProductAudit& ProductOf(const ModuleAudit& audit, GemmRole role) {
  return audit.products[static_cast<size_t>(role)];
}

/// Returns the name with `*` for each number that is a whole word.
std::string WithoutNumbers(const std::string& name) {
  std::string result;
  for (size_t at = 0; at < name.size();) {
    const size_t end = std::min(name.find('.', at), name.size());
    const std::string_view word = std::string_view(name).substr(at, end - at);
    const bool is_number =
        !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
          return std::isdigit(c) != 0;
        });
    result += is_number ? "*" : word;
    if (end < name.size()) result += '.';
    at = end + 1;
  }
  return result;
}

std::string Cell(const ModuleAudit& audit, GemmRole role) {
  return fmt::format("{}, {}", AuditName(audit, role),
                     EvidenceName(ProductOf(audit, role).evidence));
}

std::string RoleList(const std::vector<GemmRole>& roles) {
  std::vector<std::string_view> names;
  for (const GemmRole role : roles) names.push_back(GemmRoleName(role));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string AuditName(const ModuleAudit& audit, GemmRole role) {
  const ProductAudit& product = ProductOf(audit, role);
  const bool is_fprop = role == GemmRole::kFprop;
  switch (product.found) {
    case QuantizedOperands::kBoth:
      return "quantised";
    case QuantizedOperands::kNeither:
      return "not quantised";
    case QuantizedOperands::kLeftOnly:
      return is_fprop ? "x only" : "dy only";
    case QuantizedOperands::kRightOnly:
      return role == GemmRole::kWgrad ? "x only" : "weight only";
    case QuantizedOperands::kOther:
      return "otherwise";
    case QuantizedOperands::kUnknown:
      break;
  }
  return product.is_expected ? "quantised" : "not quantised";
}

std::string_view EvidenceName(AuditEvidence evidence) {
  constexpr std::string_view kNames[] = {"declared", "grid", "codes",
                                         "results"};
  return kNames[static_cast<size_t>(evidence)];
}

std::vector<std::string> UnexpectedModules(
    const std::vector<ModuleAudit>& audits) {
  std::vector<std::string> sentences;
  for (const ModuleAudit& audit : audits) {
    const std::string name = Printable(audit.choice.module);
    if (!audit.choice.is_named) {
      sentences.push_back(fmt::format(
          "{}: no pattern names this module ({}). Name it with --include or "
          "--exclude.",
          name, audit.choice.reason));
    }
    std::vector<GemmRole> wrong;
    for (const GemmRole role : precision::kGemmRoles) {
      if (ProductOf(audit, role).contradicts()) wrong.push_back(role);
    }
    if (!wrong.empty()) {
      sentences.push_back(fmt::format(
          "{}: {} should{} be quantised ({}), but {}.", name, RoleList(wrong),
          ProductOf(audit, wrong.front()).is_expected ? "" : " not",
          Printable(audit.choice.reason),
          AuditName(audit, wrong.front()) + std::string(" by ") +
              std::string(
                  EvidenceName(ProductOf(audit, wrong.front()).evidence))));
    }
    if (!audit.has_evidence()) {
      sentences.push_back(fmt::format(
          "{}: the files hold neither results nor codes that tell how it was "
          "computed. Record its products.",
          name));
    }
  }
  return sentences;
}

std::string RenderAudit(const CheckedTensors& checked,
                        const document::TextStyle& style) {
  if (checked.audits.empty()) return "";
  struct Row {
    std::string cells;
    std::vector<std::string> modules;
  };
  std::map<std::string, Row> rows;
  for (const ModuleAudit& audit : checked.audits) {
    const std::string cells = fmt::format(
        "{:<24}{:<24}{:<24}{}", Cell(audit, GemmRole::kFprop),
        Cell(audit, GemmRole::kDgrad), Cell(audit, GemmRole::kWgrad),
        Printable(audit.choice.reason));
    Row& row = rows[WithoutNumbers(audit.choice.module) + '\n' + cells];
    row.cells = cells;
    row.modules.push_back(Printable(audit.choice.module));
  }
  std::string text = fmt::format(
      "Audit of {} linear module{} by {}\n{:<24}{:<24}{:<24}{}\n",
      checked.audits.size(), checked.audits.size() == 1 ? "" : "s",
      checked.recipe.name, "  fprop", "  dgrad", "  wgrad", "  decided by");
  for (const auto& [key, row] : rows) {
    text +=
        fmt::format("{}\n  {}\n",
                    row.modules.size() == 1
                        ? row.modules.front()
                        : fmt::format("{} ({} modules)",
                                      Printable(key.substr(0, key.find('\n'))),
                                      row.modules.size()),
                    row.cells);
  }
  text +=
      document::Wrap(
          "results: the recorded results are those of such operands, and of "
          "no others. codes: the file has codes. grid: the operands lie on "
          "the recipe's grid already. declared: only patterns say so.",
          0, 0, style) +
      "\n";
  for (const std::string& sentence : checked.unexpected) {
    text += document::Wrap("Unexpected: " + sentence, 0, 2, style) + "\n";
  }
  return text;
}

}  // namespace isoloss::inspection
