#include "isoloss/campaign/page_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_static_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/span_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/random_token.h"
#include "isoloss/campaign/interrupt.h"
#include "isoloss/report/page.h"

namespace isoloss::campaign {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostConnections = 16;
constexpr size_t kMostRequestBytes = 8192;
constexpr auto kRequestTime = std::chrono::seconds(5);
constexpr auto kAnswerTime = std::chrono::seconds(60);

std::string_view View(beast::string_view text) {
  return {text.data(), text.size()};
}

struct Answer {
  http::status status = http::status::ok;
  const char* type = "text/plain; charset=utf-8";
  std::shared_ptr<const std::string> text;
};

Answer Refusal(http::status status, const char* sentence) {
  return {.status = status, .text = std::make_shared<std::string>(sentence)};
}

/// What is where, and what is refused.
class Site {
 public:
  Site(uint16_t port, ServedPage content)
      : content_(std::move(content)),
        folder_("/" + RandomToken() + "/"),
        hosts_{fmt::format("127.0.0.1:{}", port),
               fmt::format("localhost:{}", port)} {}

  std::string address() const { return "http://" + hosts_[0] + folder_; }

  Answer Of(const http::request_header<>& request) const {
    const std::string_view host = View(request[http::field::host]);
    if (request.count(http::field::host) != 1 ||
        std::ranges::count(hosts_, host) == 0) {
      return Refusal(http::status::misdirected_request,
                     "This address has another name.\n");
    }
    if (request.method() != http::verb::get &&
        request.method() != http::verb::head) {
      return Refusal(http::status::method_not_allowed,
                     "Only GET and HEAD are answered.\n");
    }
    const std::string_view target = View(request.target());
    if (target == folder_) {
      return {.type = "text/html; charset=utf-8", .text = content_.page()};
    }
    if (target == folder_ + "data.json") {
      return {.type = "application/json", .text = content_.data()};
    }
    return Refusal(http::status::not_found, "Nothing is here.\n");
  }

 private:
  ServedPage content_;
  std::string folder_;
  std::string hosts_[2];
};

http::response_header<> HeaderOf(const Answer& answer) {
  http::response_header<> header;
  header.version(11);
  header.result(answer.status);
  header.set(http::field::content_type, answer.type);
  header.set(http::field::content_length, std::to_string(answer.text->size()));
  header.set(http::field::connection, "close");
  header.set(http::field::cache_control, "no-store");
  header.set("Content-Security-Policy",
             report::PagePolicy(/*live=*/true) +
                 "; base-uri 'none'; form-action 'none'; frame-ancestors "
                 "'none'");
  header.set("X-Content-Type-Options", "nosniff");
  header.set("Referrer-Policy", "no-referrer");
  header.set("Cross-Origin-Resource-Policy", "same-origin");
  if (answer.status == http::status::method_not_allowed) {
    header.set(http::field::allow, "GET, HEAD");
  }
  return header;
}

/// What came is no request, or none that is read; not: nothing came.
bool IsMalformed(const beast::error_code& error) {
  return error.category() ==
             http::make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream &&
         error != http::error::partial_message;
}

/// One request and its answer. Lives as long as a handler has it.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const Site& site, std::function<void()> ended)
      : stream_(std::move(socket)), site_(site), ended_(std::move(ended)) {
    parser_.header_limit(kMostRequestBytes);
    parser_.body_limit(0);
  }
  ~Connection() { ended_(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// No request has come, so that nobody loses an answer.
  bool is_idle() const { return !message_.has_value(); }
  void Close() { stream_.close(); }

  void Start() {
    stream_.expires_after(kRequestTime);
    http::async_read_header(
        stream_, buffer_, parser_,
        [self = shared_from_this()](beast::error_code error, size_t) {
          if (!error) {
            self->Send(self->site_.Of(self->parser_.get().base()));
          } else if (IsMalformed(error)) {
            self->Send(
                Refusal(http::status::bad_request,
                        "The request is not understood, or too long.\n"));
          }
        });
  }

 private:
  using Body = http::span_body<const char>;

  void Send(Answer answer) {
    answer_ = std::move(answer);
    message_.emplace(HeaderOf(answer_), Body::value_type(answer_.text->data(),
                                                         answer_.text->size()));
    serializer_.emplace(*message_);
    stream_.expires_after(kAnswerTime);
    const auto end = [self = shared_from_this()](beast::error_code, size_t) {
      beast::error_code gone;
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, gone);
    };
    if (parser_.get().method() == http::verb::head) {
      http::async_write_header(stream_, *serializer_, end);
    } else {
      http::async_write(stream_, *serializer_, end);
    }
  }

  beast::tcp_stream stream_;
  const Site& site_;
  std::function<void()> ended_;
  beast::flat_static_buffer<kMostRequestBytes> buffer_;
  http::request_parser<http::empty_body> parser_;
  Answer answer_;
  std::optional<http::response<Body>> message_;
  std::optional<http::response_serializer<Body>> serializer_;
};

}  // namespace

class PageServer::Listener {
 public:
  Listener(uint16_t port, ServedPage content)
      : acceptor_(Listening(port)),
        site_(acceptor_.local_endpoint().port(), std::move(content)) {
    Accept();
  }
  ~Listener() { closing_ = true; }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::string address() const { return site_.address(); }

  bool Serve(double seconds) {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    while (Clock::now() < end && !InterruptFlag().load()) {
      // Short, because a signal alone does not end it.
      context_.run_for(std::chrono::milliseconds(50));
    }
    return !InterruptFlag().load();
  }

 private:
  tcp::acceptor Listening(uint16_t port) {
    try {
      return {context_, {asio::ip::address_v4::loopback(), port}};
    } catch (const boost::system::system_error& error) {
      ThrowError(ErrorKind::kIo,
                 "127.0.0.1:{}: nothing can listen on this port: {}. Give "
                 "another port with --port, or 0 for one that is free.",
                 port, error.code().message());
    }
  }

  /// Whoever connects and stays silent must not keep others away.
  bool CloseOldestIdle() {
    while (!waiting_.empty()) {
      const std::shared_ptr<Connection> oldest = waiting_.front().lock();
      waiting_.pop_front();
      if (oldest == nullptr || !oldest->is_idle()) continue;
      oldest->Close();
      return true;
    }
    return false;
  }

  /// The next one; when all places are taken by answers, the one that becomes
  /// free goes on.
  void Accept() {
    accepting_ = connections_ < kMostConnections || CloseOldestIdle();
    if (!accepting_) return;
    acceptor_.async_accept(
        [this](boost::system::error_code error, tcp::socket socket) {
          if (error) return AcceptLater();
          ++connections_;
          const auto connection =
              std::make_shared<Connection>(std::move(socket), site_, [this] {
                --connections_;
                if (!accepting_ && !closing_) Accept();
              });
          connection->Start();
          while (!waiting_.empty() && waiting_.front().expired()) {
            waiting_.pop_front();
          }
          waiting_.push_back(connection);
          Accept();
        });
  }

  /// Too many open files, say: others may close some.
  void AcceptLater() {
    timer_.expires_after(std::chrono::milliseconds(200));
    timer_.async_wait([this](boost::system::error_code) { Accept(); });
  }

  // What handlers use comes before the context that destroys them.
  size_t connections_ = 0;
  std::deque<std::weak_ptr<Connection>> waiting_;  ///< the oldest first
  bool accepting_ = false;
  bool closing_ = false;
  asio::io_context context_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer timer_{context_};
  const Site site_;
};

PageServer::PageServer(uint16_t port, ServedPage content)
    : listener_(std::make_unique<Listener>(port, std::move(content))) {}

PageServer::~PageServer() = default;

std::string PageServer::address() const { return listener_->address(); }

bool PageServer::Serve(double seconds) { return listener_->Serve(seconds); }

}  // namespace isoloss::campaign
