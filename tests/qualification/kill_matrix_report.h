// The kill matrix as text for people, and as JSON for programs and for going on
// later.
#pragma once

#include <string>
#include <vector>

#include "qualification/kill_matrix.h"

namespace isoloss::qualification {

/// How many seeds of a mutant a level or a rule caught.
enum class KillMark { kNone, kSome, kAll, kNotJudged };

/// The matrix as rows and columns of marks.
struct KillTable {
  struct Column {
    std::string title;   ///< "L2", "gate", "a"
    std::string rule;    ///< of a peer: its name; else ""
    bool judged = true;  ///< in any row
    Rate score;          ///< bugs caught
    Rate false_alarms;   ///< benign runs caught
  };
  struct Row {
    std::string name;
    std::string group;
    Class kind = Class::kBug;
    std::vector<KillMark> marks;  ///< one per column
    std::string finding;          ///< of the first seed that was caught
  };
  std::vector<Column> columns;  ///< levels, the whole gate, peers
  std::vector<Row> rows;        ///< grouped by class, then group
};

KillTable MakeKillTable(const KillMatrix& matrix);

/// A table of marks, the score and false alarms of every column, and a legend.
std::string RenderKillMatrix(const KillMatrix& matrix);

/// All of the matrix; "score" and "false_alarms" are there for readers only.
std::string RenderKillMatrixJson(const KillMatrix& matrix);

/// One cell as JSON and back: how a matrix is kept while it grows. `name` says
/// which cell it is.
std::string RenderKillCell(const KillCell& cell, const std::string& name);
/// Errors   FormatError naming `file` if the text is no cell, or another one.
KillCell ParseKillCell(const std::string& text, const std::string& name,
                       const std::string& file);

}  // namespace isoloss::qualification
