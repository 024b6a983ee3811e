#include "isoloss/precision/recipe_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/config/writer.h"
#include "isoloss/precision/recipe_keys.h"
#include "isoloss/precision/site_presets.h"

namespace isoloss::precision {
namespace {

using config::Reader;
using config::Writer;
using formats::Quantization;
using Operands = std::map<std::string, Quantization, std::less<>>;

Operands OperandsOf(const Recipe& recipe);

/// Returns the key of the left or right operand of a product.
std::string_view OperandKey(GemmRole role, bool left) {
  if (left) return role == GemmRole::kFprop ? "x" : "dy";
  return role == GemmRole::kWgrad ? "x" : "w";
}

/// Calls `use` for the section of each of the three products.
template <typename Use>
void ForEachRole(const Use& use) {
  for (const GemmRole role : kGemmRoles) use(role, GemmRoleName(role));
}

// ---- reading ---------------------------------------------------------------

std::optional<Quantization> ReadOperand(Reader& fields, std::string_view key,
                                        const Operands& operands) {
  std::string name;
  fields.Text(key, name);
  if (!fields.Has(key)) return std::nullopt;
  const auto found = operands.find(name);
  if (found != operands.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, operand] : operands) names.push_back(known);
  fields.OneOf(key, name, names);  // throws: it is none of them
  return std::nullopt;
}

GemmPrecision ReadProduct(Reader fields, GemmRole role,
                          const Operands& operands) {
  GemmPrecision precision;
  precision.left = ReadOperand(fields, OperandKey(role, true), operands);
  precision.right = ReadOperand(fields, OperandKey(role, false), operands);
  Visit(fields, precision.accumulation);
  if (role == GemmRole::kWgrad) {
    fields.Flag("dy_again", precision.left_again);
    fields.Flag("x_again", precision.right_again);
  }
  fields.RejectUnknown();
  const std::string wrong = WrongPrecision(precision, role);
  if (!wrong.empty()) {
    ThrowError(ErrorKind::kConfig, "{}: it {}. Correct the product.",
               fields.Where({OperandKey(role, true)}), wrong);
  }
  return precision;
}

/// Reads the keys x, w, dy and sums of all three products.
LinearPrecision ReadProducts(Reader& fields, const Operands& operands) {
  LinearPrecision precision;
  ForEachRole([&](GemmRole role, std::string_view name) {
    precision.For(role) = ReadProduct(fields.Section(name), role, operands);
  });
  return precision;
}

Operands ReadOperands(Reader fields) {
  Operands operands;
  for (auto& [name, section] : fields.Sections()) {
    Quantization operand;
    section.Require("element", "Each operand names its element format.");
    Visit(section, operand);
    section.RejectUnknown();
    const std::string wrong = WrongQuantization(operand);
    if (!wrong.empty()) {
      ThrowError(ErrorKind::kConfig, "{}: it {}. Correct the operand.",
                 section.Where({"element"}), wrong);
    }
    operands.emplace(name, operand);
  }
  return operands;
}

/// The number of tables is limited, because a file may be made to be slow.
void RequireFew(const Reader& fields, std::string_view key, size_t count) {
  if (count <= kMaxPatterns) return;
  fields.Fail(key, fmt::format("holds {} tables, but a recipe has at most {} "
                               "of them. Describe several sites by one.",
                               count, kMaxPatterns));
}

AttentionPrecision ReadAttention(Reader fields, const Operands& operands) {
  AttentionPrecision precision;
  for (const auto& [key, operand] : kAttentionOperands) {
    precision.*operand = ReadOperand(fields, key, operands);
  }
  fields.RejectUnknown();
  const std::string wrong = WrongAttention(precision);
  if (!wrong.empty()) {
    ThrowError(ErrorKind::kConfig, "{}: it {}. Correct the operand.",
               fields.Where({"q", "k", "p", "v", "do", "ds"}), wrong);
  }
  return precision;
}

std::optional<Quantization> ReadNormGains(Reader& fields,
                                          const Operands& operands) {
  auto gains = ReadOperand(fields, "norm_gains", operands);
  const std::string wrong = gains ? WrongNormGains(*gains) : "";
  if (!wrong.empty()) fields.Fail("norm_gains", wrong + ". Correct it.");
  return gains;
}

/// An operand that is never used is a mistake, as an unknown key is.
void RequireUse(const Reader& fields, const Operands& operands,
                const Recipe& recipe) {
  const Operands used = OperandsOf(recipe);
  for (const auto& [name, operand] : operands) {
    if (std::ranges::find(used, operand, &Operands::value_type::second) !=
        used.end()) {
      continue;
    }
    fields.Fail("operands",
                fmt::format("describes `{}`, but no product, norm or attention "
                            "operand names it. Name it or remove it.",
                            name));
  }
}

void RequireOwnName(const Reader& fields, const Recipe& recipe) {
  for (const Recipe* registered : AllRecipes()) {
    if (registered->name != recipe.name || registered->SameContent(recipe)) {
      continue;
    }
    ThrowError(ErrorKind::kConfig,
               "{}: the recipe is called `{}`, which is built in, but its "
               "content differs from that recipe's. Give it a name of its own.",
               fields.Where({"name"}), recipe.name);
  }
}

// ---- writing ---------------------------------------------------------------

/// Returns a key that says what the operand is.
std::string KeyOf(const Quantization& operand) {
  std::string key;
  for (const char c : QuantizationName(operand)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (plain) {
      key += c;
    } else if (!key.empty() && key.back() != '_') {
      key += '_';
    }
  }
  return key;
}

std::vector<const LinearPrecision*> AllProducts(const Recipe& recipe) {
  std::vector<const LinearPrecision*> all = {&recipe};
  for (const SiteOverride& item : recipe.overrides) {
    all.push_back(&item.precision);
  }
  return all;
}

/// Operands such as `hadamard16·te` and `hadamard16_te` differ, but get the
/// same key. A number is then added.
void AddOperand(const Quantization& operand, Operands& operands) {
  std::string key = KeyOf(operand);
  for (int i = 2; operands.contains(key) && operands[key] != operand; ++i) {
    key = fmt::format("{}_{}", KeyOf(operand), i);
  }
  operands.emplace(std::move(key), operand);
}

Operands OperandsOf(const Recipe& recipe) {
  Operands operands;
  for (const LinearPrecision* precision : AllProducts(recipe)) {
    ForEachRole([&](GemmRole role, std::string_view) {
      const GemmPrecision& product = precision->For(role);
      for (const auto& operand : {product.left, product.right}) {
        if (operand) AddOperand(*operand, operands);
      }
    });
  }
  for (const auto& [key, operand] : kAttentionOperands) {
    const auto& given = recipe.attention.*operand;
    if (given) AddOperand(*given, operands);
  }
  if (recipe.norm_gains) AddOperand(*recipe.norm_gains, operands);
  return operands;
}

class RecipeWriter {
 public:
  explicit RecipeWriter(std::string section) : section_(std::move(section)) {}

  std::string Write(const Recipe& recipe) {
    if (section_.empty()) {
      Text("name", recipe.name);
    } else {
      Heading("");
    }
    Keys(recipe, Recipe());
    operands_ = OperandsOf(recipe);
    if (recipe.norm_gains) Operand("norm_gains", *recipe.norm_gains);
    for (const auto& [key, operand] : operands_) {
      Heading("operands." + key);
      Keys(operand, Quantization());
    }
    Products("", recipe);
    if (recipe.attention.quantizes()) {
      Heading("attention");
      for (const auto& [key, operand] : kAttentionOperands) {
        const auto& given = recipe.attention.*operand;
        if (given) Operand(key, *given);
      }
    }
    for (const SiteOverride& item : recipe.overrides) {
      text_ += fmt::format("\n[[{}]]\n", Full("overrides"));
      text_ += fmt::format("sites = [{}]\n", Quoted(item.sites));
      Products("overrides.", item.precision);
    }
    return text_;
  }

 private:
  static std::string Quoted(const std::vector<std::string>& texts) {
    std::vector<std::string> quoted;
    for (const std::string& text : texts)
      quoted.push_back(config::Quoted(text));
    return fmt::format("{}", fmt::join(quoted, ", "));
  }
  std::string Full(const std::string& name) const {
    if (name.empty()) return section_;
    return section_.empty() ? name : section_ + "." + name;
  }
  void Heading(const std::string& name) {
    text_ += fmt::format("{}[{}]\n", text_.empty() ? "" : "\n", Full(name));
  }
  void Text(std::string_view key, std::string_view value) {
    text_ += fmt::format("{} = {}\n", key, config::Quoted(value));
  }
  void Operand(std::string_view key, const Quantization& operand) {
    Text(key,
         std::ranges::find(operands_, operand, &Operands::value_type::second)
             ->first);
  }
  /// Writes the lines that differ from those of `defaults`.
  template <typename T>
  void Keys(T keys, T defaults) {
    Writer fields;
    Writer of_defaults;
    Visit(fields, keys);
    Visit(of_defaults, defaults);
    const std::string plain = "\n" + of_defaults.text();
    const std::string& text = fields.text();
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin) + 1;
      const std::string line = text.substr(begin, end - begin);
      if (plain.find("\n" + line) == std::string::npos) text_ += line;
      begin = end;
    }
  }
  void Products(const std::string& prefix, const LinearPrecision& precision) {
    ForEachRole([&](GemmRole role, std::string_view name) {
      const GemmPrecision& product = precision.For(role);
      if (product == GemmPrecision()) return;
      Heading(prefix + std::string(name));
      if (product.left) Operand(OperandKey(role, true), *product.left);
      if (product.right) Operand(OperandKey(role, false), *product.right);
      Keys(product.accumulation, kernels::Accumulation());
      if (product.left_again) text_ += "dy_again = true\n";
      if (product.right_again) text_ += "x_again = true\n";
    });
  }

  std::string section_;
  Operands operands_ = {};
  std::string text_ = {};
};

}  // namespace

Recipe ReadRecipe(Reader fields, std::string_view name) {
  Recipe recipe;
  recipe.name = name;
  if (name.empty()) {
    fields.Require("name", "A recipe needs a name, which reports show.");
    fields.Text("name", recipe.name);
  }
  if (const SitePreset* sites = ReadSitePreset(fields)) {
    recipe.include = sites->include;
    recipe.exclude = sites->exclude;
  }
  Visit(fields, recipe);
  Reader described = fields.Section("operands");
  RequireFew(fields, "operands", described.Sections().size());
  const Operands operands = ReadOperands(described);
  static_cast<LinearPrecision&>(recipe) = ReadProducts(fields, operands);
  recipe.attention = ReadAttention(fields.Section("attention"), operands);
  recipe.norm_gains = ReadNormGains(fields, operands);
  std::vector<Reader> overrides = fields.TableList("overrides");
  RequireFew(fields, "overrides", overrides.size());
  for (Reader& section : overrides) {
    SiteOverride& item = recipe.overrides.emplace_back();
    section.Require("sites", "An override names the sites that it is for.");
    section.Texts("sites", item.sites);
    item.precision = ReadProducts(section, operands);
    section.RejectUnknown();
  }
  fields.RejectUnknown();
  RequireUse(fields, operands, recipe);
  RequireOwnName(fields, recipe);
  return recipe;
}

Recipe ParseRecipe(std::string_view text, std::string file) {
  const config::Document document(text, std::move(file));
  return ReadRecipe(Reader(document));
}

Recipe RecipeByNameOrFile(const std::string& name) {
  if (!name.ends_with(".toml")) return RecipeByName(name);
  return ParseRecipe(ReadTextFile(name, "Pass a recipe."), name);
}

std::string RecipeText(const Recipe& recipe, const std::string& section) {
  return RecipeWriter(section).Write(recipe);
}

}  // namespace isoloss::precision
