#include "isoloss/estimators/claim_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "isoloss/config/document.h"
#include "isoloss/config/reader.h"

namespace isoloss::estimators {
namespace {

using config::Reader;

constexpr size_t kMaxTextBytes = 2000;
constexpr size_t kMaxOverrides = 32;
constexpr int64_t kMaxLooks = 10;
constexpr double kLargestBound = 1e6;

void NeedText(Reader& fields, std::string_view key, std::string& value) {
  fields.Require(key, "Write a sentence.");
  fields.Text(key, value);
  if (value.empty() || value.size() > kMaxTextBytes) {
    fields.Fail(key, fmt::format("has {} bytes, but must have 1 to {}. "
                                 "Correct it.",
                                 value.size(), kMaxTextBytes));
  }
}

/// Returns whether `name` may be the name of a folder or a file here.
bool IsPlainName(std::string_view name) {
  constexpr size_t kLongest = 60;
  const auto fits = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z') || c == '.' || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kLongest && name.front() != '.' &&
         std::ranges::all_of(name, fits);
}

void NeedName(Reader& fields, std::string_view key, std::string& value) {
  fields.Text(key, value);
  if (IsPlainName(value)) return;
  fields.Fail(key,
              "must be a name of 1 to 60 letters, digits, '.', '_' and '-' "
              "that does not begin with '.'. Correct it.");
}

/// Checks the rules that need all keys of a student together.
void CheckStudent(const Reader& fields, const Student& student) {
  if (student.Operations() > kMostStudentOperations) {
    fields.Fail("steps",
                fmt::format("makes a run of {:.2g} operations, but one may "
                            "have {:.2g}. Lower width, depth, hidden, batch "
                            "or steps.",
                            student.Operations(), kMostStudentOperations));
  }
  if (student.Bytes() > kMostStudentBytes) {
    fields.Fail(
        "batch",
        fmt::format("makes a run of {:.0f} MiB, but one may have "
                    "{:.0f}. Lower width, depth, hidden or batch.",
                    student.Bytes() / 0x1p20, kMostStudentBytes / 0x1p20));
  }
}

Student ReadStudent(Reader& fields) {
  Student student;
  fields.Integer("width", student.width, 8, 512);
  fields.Integer("depth", student.depth, 1, 32, "layers");
  fields.Integer("hidden", student.hidden, 8, 2048);
  fields.Integer("batch", student.batch, 1, 4096);
  fields.Integer("steps", student.steps, kStudentEvaluations, 100'000);
  if (student.steps % kStudentEvaluations != 0) {
    fields.Fail("steps",
                "must be a multiple of 10: losses are measured after "
                "each tenth. Correct it.");
  }
  fields.Real("lr", student.lr, config::Interval{0, 100, true});
  fields.Real("label_noise", student.label_noise, config::Closed(0, 100));
  fields.Text("format", student.format);
  fields.Integer("seeds", student.seeds, 2, 1000);
  fields.RejectUnknown();
  CheckStudent(fields, student);
  return student;
}

ClaimCell ReadCell(Reader& fields) {
  ClaimCell cell;
  fields.Require("name", "Write name = \"plain\".");
  NeedName(fields, "name", cell.name);
  Reader student = fields.Section("student");
  if (fields.Has("student")) {
    cell.student = ReadStudent(student);
    fields.RejectUnknown();
    return cell;
  }
  NeedName(fields, "experiment", cell.experiment);
  fields.Texts("set", cell.overrides);
  if (cell.overrides.size() > kMaxOverrides) {
    fields.Fail("set", fmt::format("has {} entries, but may have {}. Write "
                                   "them into the experiment.",
                                   cell.overrides.size(), kMaxOverrides));
  }
  fields.Text("stress", cell.stress);
  fields.RejectUnknown();
  return cell;
}

void CheckBound(const Reader& fields, const Contrast& contrast) {
  const bool within = contrast.relation == Relation::kWithin;
  if (within && contrast.measure == Measure::kParameterFactor) {
    fields.Fail(
        "relation",
        "is \"within\", which is around 0, but a factor of parameters "
        "is 1 if two arms are alike. Write a contrast \"above\" a bound "
        "and one \"below\" another.");
  }
  if ((within || contrast.measure == Measure::kParameterFactor) &&
      contrast.bound <= 0) {
    fields.Fail("bound",
                fmt::format("is {:g}, but must be above 0 {}. Correct it.",
                            contrast.bound,
                            within ? "with relation \"within\""
                                   : "for a factor of parameters"));
  }
  if (within && contrast.equivalence) {
    fields.Fail("equivalence",
                "has no meaning with relation \"within\", whose bound is one. "
                "Leave it out.");
  }
  if (within && contrast.role == ContrastRole::kControl) {
    fields.Fail("relation",
                "is \"within\", but a control shows that a bad recipe is seen: "
                "it lies \"above\" or \"below\" a bound. Correct it.");
  }
}

/// Checks the published size of a contrast of the claim.
void CheckSize(const Reader& fields, const Contrast& contrast) {
  if (contrast.relation == Relation::kWithin) {
    if (std::fabs(*contrast.published_size) < contrast.bound) return;
    fields.Fail("published_size",
                fmt::format("is {:g}, but must lie within +-{:g}, the bound. "
                            "Write 0 if the source gives no size.",
                            *contrast.published_size, contrast.bound));
  }
  const bool above = contrast.relation == Relation::kAbove;
  if (!(contrast.Effect() > 0)) {
    fields.Fail("published_size",
                fmt::format("is {:g}, but must lie {} the bound, {:g}: it is "
                            "the size that the claim expects. Correct it.",
                            *contrast.published_size, above ? "above" : "below",
                            contrast.bound));
  }
  if (contrast.Nothing() > contrast.Effect()) {
    fields.Fail("equivalence",
                fmt::format("is {:g}, but the published size is only {:g} from "
                            "the bound. Lower it.",
                            contrast.Nothing(), contrast.Effect()));
  }
}

/// Reads the size that the source reports, with which power is computed.
void ReadSize(Reader& fields, Contrast& contrast) {
  if (contrast.role != ContrastRole::kClaim) return;
  const bool rates = contrast.measure == Measure::kDivergence;
  const double most = rates ? 100 : kLargestBound;
  fields.Require("published_size",
                 "Write the size that the source reports, such as 0.5 in the "
                 "unit of the measure. If it reports none, write the smallest "
                 "size that the claim means.");
  fields.Real("published_size", contrast.published_size,
              config::Closed(-most, most));
  fields.Require("size_source",
                 "Say where published_size stands, or \"ours: ...\".");
  NeedText(fields, "size_source", contrast.size_source);
  fields.Real("equivalence", contrast.equivalence,
              config::Interval{0, kLargestBound, true});
  if (rates) return;  // Their spread follows from the rates.
  fields.Real("spread", contrast.spread,
              config::Interval{0, kLargestBound, true});
}

void ReadCellOf(Reader& fields, std::string_view key, const Claim& claim,
                std::string& value) {
  std::vector<std::string> names;
  for (const ClaimCell& cell : claim.cells) names.push_back(cell.name);
  fields.OneOf(key, value, names);
}

/// Reads where the measured number lies according to the claim.
void ReadRule(Reader& fields, Contrast& contrast) {
  fields.Require("measure", "Write measure = \"gap\".");
  fields.Choice("measure", contrast.measure, kMeasures);
  fields.Require("relation", "Write relation = \"above\".");
  fields.Choice("relation", contrast.relation, kRelations);
  fields.Require("bound", "Write bound = 0.");
  fields.Real("bound", contrast.bound,
              config::Closed(-kLargestBound, kLargestBound));
  fields.Choice("role", contrast.role, kContrastRoles);
  ReadSize(fields, contrast);
}

/// Reads which runs the contrast compares.
void ReadArms(Reader& fields, const Claim& claim, Contrast& contrast) {
  for (const auto& [key, value] :
       {std::pair("arm", &contrast.arm),
        std::pair("reference", &contrast.reference)}) {
    fields.Require(key, "Write the name of an arm.");
    fields.Text(key, *value);
  }
  contrast.cell = claim.cells.front().name;
  if (contrast.measure != Measure::kParameterFactor) {
    ReadCellOf(fields, "cell", claim, contrast.cell);
  }
  contrast.other_cell = contrast.cell;
  contrast.other_arm = contrast.arm;
  contrast.other_reference = contrast.reference;
  if (contrast.measure != Measure::kInteraction) return;
  ReadCellOf(fields, "other_cell", claim, contrast.other_cell);
  fields.Text("other_arm", contrast.other_arm);
  fields.Text("other_reference", contrast.other_reference);
  if (contrast.cell == contrast.other_cell &&
      contrast.arm == contrast.other_arm &&
      contrast.reference == contrast.other_reference) {
    fields.Fail("other_arm",
                "is missing: an interaction compares two gaps, and both are "
                "the same. Give other_cell, or other_arm and "
                "other_reference.");
  }
}

/// Reads at which steps the contrast takes losses.
void ReadShares(Reader& fields, Contrast& contrast) {
  constexpr config::Interval kShares{0, 1, true};
  if (contrast.measure != Measure::kDivergence) {
    fields.Real("at", contrast.at, kShares, "of the steps");
  }
  if (contrast.measure != Measure::kGapChange) return;
  fields.Require("from", "Write from = 0.8.");
  fields.Real("from", contrast.from, kShares, "of the steps");
  if (contrast.from >= contrast.at) {
    fields.Fail("from", fmt::format("is {:g}, but must be below `at`, {:g}. "
                                    "Correct it.",
                                    contrast.from, contrast.at));
  }
}

Contrast ReadContrast(Reader& fields, const Claim& claim) {
  Contrast contrast;
  fields.Require("name", "Write name = \"floor\".");
  NeedName(fields, "name", contrast.name);
  NeedText(fields, "says", contrast.says);
  ReadRule(fields, contrast);
  ReadArms(fields, claim, contrast);
  ReadShares(fields, contrast);
  fields.RejectUnknown();
  CheckBound(fields, contrast);
  if (contrast.published_size) CheckSize(fields, contrast);
  const bool has_students = std::ranges::any_of(
      claim.cells,
      [](const ClaimCell& cell) { return cell.student.has_value(); });
  if (contrast.measure == Measure::kParameterFactor && has_students) {
    fields.Fail("measure",
                "takes experiments of several sizes, but a cell is a student. "
                "Make two claims of it.");
  }
  return contrast;
}

void CheckCount(Reader& fields, std::string_view key, size_t count,
                size_t most) {
  if (count <= most) return;
  fields.Fail(key, fmt::format("has {} tables, but may have {}. Make two "
                               "claims of it.",
                               count, most));
}

template <typename T>
void RefuseTwice(const Reader& fields, const std::vector<T>& known,
                 const T& item) {
  if (std::ranges::count(known, item.name, &T::name) == 0) return;
  fields.Fail("name", fmt::format("is {}, as another one's is. Rename one.",
                                  item.name));
}

/// Refuses a control that sees less than the claim lets pass.
void CheckControl(const Reader& fields, const Claim& claim,
                  const Contrast& control) {
  if (control.role != ContrastRole::kControl ||
      control.measure == Measure::kParameterFactor) {
    return;
  }
  double passed = 0;
  for (const Contrast& contrast : claim.contrasts) {
    if (contrast.role == ContrastRole::kClaim &&
        contrast.relation == Relation::kWithin &&
        MeasuresTheSame(control, contrast)) {
      passed = std::max(passed, contrast.bound);
    }
  }
  const bool above = control.relation == Relation::kAbove;
  if (above ? control.bound >= passed : control.bound <= -passed) return;
  fields.Fail("bound", fmt::format("is {:g}, but a control must lie {} {:g}, "
                                   "since the claim lets pass what is within "
                                   "that. Correct it.",
                                   control.bound, above ? "above" : "below",
                                   above ? passed : -passed));
}

/// Requires that a control guards each contrast `within` a bound, if there are
/// controls.
void CheckGuard(const Reader& fields, const Claim& claim,
                const Contrast& contrast) {
  if (claim.CountOf(ContrastRole::kControl) == 0 || claim.IsGuarded(contrast))
    return;
  const bool of_rates = contrast.measure == Measure::kDivergence;
  fields.Fail(
      "relation",
      fmt::format(
          "is \"within\", but none of the controls compares {} in {} in "
          "cell {}{}. Add [[contrasts]] of role \"control\" that does.",
          of_rates ? "rates of divergence" : "losses", UnitOf(contrast.measure),
          contrast.cell,
          contrast.other_cell == contrast.cell ? ""
                                               : " or " + contrast.other_cell));
}

/// Limits the number of arms, since the speed of each arm is measured.
void CheckArms(const Reader& fields, const Claim& claim) {
  std::set<std::string> arms;
  for (const Contrast& contrast : claim.contrasts) {
    arms.insert({contrast.arm, contrast.reference, contrast.other_arm,
                 contrast.other_reference});
  }
  if (arms.size() <= kMaxArms) return;
  fields.Fail("contrasts", fmt::format("name {} arms, but may name {}. Make "
                                       "two claims of it.",
                                       arms.size(), kMaxArms));
}

void ReadSource(Reader& fields, Claim& claim) {
  NeedText(fields, "title", claim.title);
  NeedText(fields, "statement", claim.statement);
  Reader source = fields.Section("source");
  NeedText(source, "paper", claim.paper);
  NeedText(source, "section", claim.section);
  source.Text("arxiv", claim.arxiv);
  NeedText(source, "published", claim.published);
  NeedText(source, "here", claim.here);
  source.RejectUnknown();
}

}  // namespace

Claim ParseClaim(std::string_view text, std::string_view file) {
  const config::Document document(text, std::string(file));
  Reader fields(document);
  Claim claim;
  ReadSource(fields, claim);
  fields.Integer("looks", claim.looks, 1, kMaxLooks);
  std::vector<Reader> cells = fields.TableList("cells");
  CheckCount(fields, "cells", cells.size(), kMaxCells);
  for (Reader& cell : cells) {
    ClaimCell read = ReadCell(cell);
    RefuseTwice(cell, claim.cells, read);
    claim.cells.push_back(std::move(read));
  }
  if (claim.cells.empty()) claim.cells.emplace_back();
  std::vector<Reader> contrasts = fields.TableList("contrasts");
  CheckCount(fields, "contrasts", contrasts.size(), kMaxContrasts);
  for (Reader& contrast : contrasts) {
    Contrast read = ReadContrast(contrast, claim);
    RefuseTwice(contrast, claim.contrasts, read);
    claim.contrasts.push_back(std::move(read));
  }
  fields.RejectUnknown();
  if (claim.CountOf(ContrastRole::kClaim) == 0) {
    fields.Fail("contrasts",
                "has none of role \"claim\", but a verdict needs one. Write "
                "[[contrasts]].");
  }
  for (size_t i = 0; i < contrasts.size(); ++i) {
    CheckControl(contrasts[i], claim, claim.contrasts[i]);
  }
  for (size_t i = 0; i < contrasts.size(); ++i) {
    CheckGuard(contrasts[i], claim, claim.contrasts[i]);
  }
  CheckArms(fields, claim);
  return claim;
}

}  // namespace isoloss::estimators
