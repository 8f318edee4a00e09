/* The request for several nodes, or several terms: two nodes, two clients.
 *
 * What is modelled: multi_node_request (start, granted, refused, raised,
 * cancel, give_back_and_ask_again, view_changed, node_gone, lost, lose,
 * release, hand_over_to), coordinator (open, cancel, release, link_up,
 * link_down, tick, installed, apply, hand_over_to, follow_view,
 * start_what_can, start), membership (all events but close and those of a
 * mismatch), worker (receive, settled, set_ready, close_epoch, take, drop,
 * let_go, install, settle_row), of lock_table what a part needs (a grant in
 * the order of the queue, issue, raise, install), and how effect_executor and
 * node_worker carry effects out. Names as in the code.
 *
 * Each event of a machine is one step, with all that follows on the same stack:
 * what a scope's actor says to itself is heard before anything else. On one node
 * that actor and the worker of the peer are two, so each has its own queue of
 * what has come, in the order in which the link brought it. Grants of a manager,
 * and the worker's hearing of them, are steps of their own. Requests wait at the
 * link and may be overtaken by everything else; an abandon takes its request out
 * there (link_machine). The steps are written in C, inside c_code, so that they
 * can be read beside the code.
 *
 * Who runs: client n lives on node n and makes ROUNDS requests, one after
 * another, of any of KINDS and WHAT; exclusive, or with SHARES shared, too. It
 * may cancel at any time, and a node may refuse a part that waits, together ENDS
 * times; it releases some time. Node 0 is first in the node order. The link may
 * break (BREAKS times) and come back with another epoch, node 1 may be killed
 * (KILLS times) and start again, at any moment. With JOINING=1 node 1 opens the
 * scope late, with JOINING=2 both do, and may take each other for down.
 *
 * A link that breaks loses what is under way, and each of the four actors hears
 * of it some time later; what they say meanwhile is of a closed epoch, and
 * dropped. (What has arrived but is not yet worked on is as if it had been
 * worked on before, or were lost.)
 *
 * What is asserted: on each node a term has one holder or shared ones, except
 * where a hand-over put holds together; a grant is told when each of its nodes
 * has all of its terms, with one token; nobody else has been granted the same
 * on a node that both reach, and has not given it up; tokens of exclusive
 * grants of a term with a node in common increase; a node that joins grants
 * nothing; where holds meet, one is left, and it was whole; M2 to M6. In the end
 * every request has ended once and nothing is left on any node; spin reports
 * whoever is stuck as an invalid end state.
 *
 * Not modelled: sessions with several requests (re-entrance, upgrade, siblings,
 * downgrade), part of a lock_all given up by its client, direct holds, no_wait,
 * closing a scope, mismatch, batches and windows, the tokens of a node whose
 * clock stepped back, a third node. Deadlocks are in walk.pml, a row's own steps
 * in row.pml.
 *
 * A trail is read with: SHOW=1 ./pan -r multi_node.pml.trail
 *
 * Faults, each with -D; spin finds every one of them:
 *   ALL_AT_ONCE           the lead is not asked first: two clients wait for
 *                         each other
 *   NO_RAISE              a node that had to issue a larger token keeps it
 *   RELEASES_LEAD_ONLY    a release is said to the lead alone
 *   FORGETS_ABANDON       a request that ends takes back what is held, not
 *                         what is still asked
 *   ABANDON_OVERTAKES     an abandon overtakes its request at the link
 *   BELIEVES_OLD_ATTEMPT  an answer to an older attempt counts
 *   KEEPS_OLD_EPOCH       a worker does not drop what came over a link that is
 *                         gone
 *   NO_HAND_OVER          who has the scope open takes a peer into its view
 *                         without telling it what is held
 *   READY_AT_ONCE         a node that joins does not wait for the hand-over
 *   PARTIAL_COUNTS        where holds meet, a part of a request that is not
 *                         whole wins by its token
 *   LOST_BEFORE_GRANTED   `lost` is not believed of a part that is still asked:
 *                         it came before `granted`, whose waiter the manager has
 *                         served but whose worker has not heard of it. (Found
 *                         by this model in multi_node_request::lost.)
 */

#ifndef TERMS
#define TERMS 1
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
/* 1: every_node, 2: both nodes listed, 4: node 0 listed, 8: node 1. */
#ifndef KINDS
#define KINDS 3
#endif
/* As bits: 1: the first term, 2: the second, 4: both. */
#ifndef WHAT
#define WHAT 1
#endif
#ifndef ENDS
#define ENDS 0
#endif
#ifndef BREAKS
#define BREAKS 0
#endif
#ifndef KILLS
#define KILLS 0
#endif

#define ALL (2 * ROUNDS)
#define NOBODY ALL

c_decl {
  typedef unsigned char u8;

  extern void (*uerror)(char*);

  enum message_kind {
    no_message, request, granted, refused, abandon, release, raise_to, raised,
    lost, scope_opened, hand_over, installed, link_up, link_down
  };

  typedef struct {
    u8 what;
    u8 local;    /* posted on the same node: no link loses it */
    u8 r;        /* the request; NOBODY: of none */
    u8 a;        /* its attempt */
    u8 x;        /* adopt, terms, which term, if_partial, not open, epoch */
    u8 t[TERMS]; /* tokens */
    u8 floor;
  } message;

#define ROOM 6
  typedef struct {
    u8 size;
    message at[ROOM];
  } channel;

  enum { ended, idle, asking_lead, asking_others, raising, whole };
  enum { out, unasked, asked, held, in_raise };
  enum { nothing, pending, has_it, over };
  enum { unheard, linked, settled, absent, down };
  enum { none, held_back, taking, complete };
  enum { unknown, asked_for, known_whole, known_lost };

  /* multi_node_request; and what its client knows. */
  typedef struct {
    u8 phase, attempt, left, listed;
    u8 carried[TERMS], tokens[TERMS];
    struct {
      u8 state;
      u8 tokens[TERMS];
    } part[2];
    u8 every, terms, exclusive;
    u8 word, gone, posted;
  } home_side;

  /* worker::entry; and its holds, as they lie in the rows. */
  typedef struct {
    u8 state, attempt, adopt, hears;
    u8 carried[TERMS];
    struct {
      u8 record, token, known;
    } hold[TERMS];
  } far_side;

  typedef struct {
    u8 open, ready, peer, in_view, installing;
    u8 joined; /* ghost: its peer has handed over, or was down */
    u8 home_epoch;                 /* as the coordinator knows it */
    u8 worker_epoch, worker_ready; /* the worker of the peer */
    u8 floor, highest;
    struct {
      u8 counter;
      u8 issued; /* ghost: the largest exclusive token that a client has seen */
      u8 size, queue[ALL];
    } row[TERMS];
  } node;

  typedef struct {
    u8 epoch, next_epoch, ends, breaks, kills;
    node node[2];
    home_side home[ALL];
    far_side far[ALL][2];
    channel to_home[2], to_worker[2], unsent[2];
    /* What can happen; it follows from the rest. (spin takes neither a call nor
     * a comparison in a c_expr.) */
    struct {
      u8 ask[2], time_out[2], grant[2][TERMS];
      u8 refuse[ALL][2], cancel[ALL], release[ALL];
      u8 come_up, finish;
    } can;
  } cluster;
}

c_state "cluster s" "Global"

c_code {
#define S now.s

  /* The node at work, what its scope's actor says to itself, changes of
   * membership. */
  static int n;
  static int by_peers_worker; /* or by the scope's actor */
  static message own[16];
  static int own_first, own_last;
  static struct {
    u8 left, greet, decline, hand_over, view, resolved, ready;
  } changes;

  static void fail(const char* what) {
    uerror((char*) what);
  }

#define check(condition, what) \
  do { if (!(condition)) fail(what); } while (0)

  static u8 larger(u8 x, u8 y) {
    return x > y ? x : y;
  }

  static int home_of(int r) {
    return r % 2;
  }

  static void put(channel* c, message m) {
    check(c->size < ROOM, "a channel is too short");
    if (c->size < ROOM)
      c->at[c->size++] = m;
  }

  static message take_out(channel* c, int i) {
    message m = c->at[i];
    for (--c->size; i < c->size; ++i)
      c->at[i] = c->at[i + 1];
    memset(&c->at[c->size], 0, sizeof(message));
    return m;
  }

  static message make(int what, int r, int a, int x, const u8* tokens) {
    message m;
    memset(&m, 0, sizeof(m));
    m.what = what; m.r = r; m.a = a; m.x = x;
    if (tokens)
      memcpy(m.t, tokens, TERMS);
    return m;
  }

  /* -- sending -------------------------------------------------------------- */

  static int linked_now(int h) {
    return S.epoch != 0 && S.node[h].home_epoch == S.epoch;
  }

  /* The coordinator of n to the worker on node `to`. */
  static void to_part(int to, message m) {
    channel* q = &S.unsent[n];
    int i;
    if (to == n) {
      own[own_last++] = m;
      return;
    }
    if (!linked_now(n))
      return;
    if (m.what == request) {
      put(q, m);
      return;
    }
#ifndef ABANDON_OVERTAKES
    if (m.what == abandon)
      for (i = 0; i < q->size; ++i)
        if (q->at[i].r == m.r && q->at[i].a == m.a) {
          take_out(q, i);
          return;
        }
#endif
    put(&S.to_worker[to], m);
  }

  /* A worker on n to the home of a request. */
  static void to_its_home(message m) {
    m.local = home_of(m.r) == n;
    if (m.local && by_peers_worker)
      put(&S.to_home[n], m);
    else if (m.local)
      own[own_last++] = m;
    else if (S.epoch != 0 && S.node[n].worker_epoch == S.epoch)
      put(&S.to_home[home_of(m.r)], m);
  }

  static void to_peers_home(message m) {
    if (linked_now(n))
      put(&S.to_home[1 - n], m);
  }

  /* -- lock_table ----------------------------------------------------------- */

#define HOLD(r, o, t) S.far[r][o].hold[t]

  static int in_the_way(int o, int t, int r) {
    int k;
    for (k = 0; k < ALL; ++k)
      if (k != r && HOLD(k, o, t).record
          && (S.home[k].exclusive || S.home[r].exclusive))
        return 1;
    return 0;
  }

  /* enter, issue */
  static void enter(int r, int o, int t) {
    u8 own_counter = larger(S.node[o].row[t].counter, S.node[o].floor);
    u8 from = S.far[r][o].carried[t];
    u8 token;
    int k;
    check(!in_the_way(o, t, r), "a grant excludes all that it must");
    check(S.node[o].joined, "a node that joins grants nothing");
    if (S.home[r].exclusive) {
      int adopts = S.far[r][o].adopt && from > own_counter;
      token = adopts ? from
                     : ((((larger(own_counter, from)) >> 1) + 1) << 1) | o;
      check(token < 250, "a token is too large for this model");
      S.node[o].row[t].counter = token;
      S.node[o].highest = larger(S.node[o].highest, token);
    } else {
      token = 0;
      for (k = 0; k < ALL; ++k)
        if (HOLD(k, o, t).record)
          token = larger(token, HOLD(k, o, t).token);
      token = larger(token ? token : own_counter, from);
      S.node[o].row[t].counter = larger(S.node[o].row[t].counter, from);
      S.node[o].highest = larger(S.node[o].highest, from);
    }
    HOLD(r, o, t).record = 1;
    HOLD(r, o, t).token = token;
    HOLD(r, o, t).known = unknown;
  }

  static int queued(int o, int t, int r) {
    int i;
    for (i = 0; i < S.node[o].row[t].size; ++i)
      if (S.node[o].row[t].queue[i] == r)
        return i + 1;
    return 0;
  }

  static void leave_queue(int o, int t, int i) {
    for (--S.node[o].row[t].size; i < S.node[o].row[t].size; ++i)
      S.node[o].row[t].queue[i] = S.node[o].row[t].queue[i + 1];
    S.node[o].row[t].queue[S.node[o].row[t].size] = 0;
  }

  /* -- worker --------------------------------------------------------------- */

  static int outranks(int x, int y, int t) {
    int tx = HOLD(x, n, t).token, ty = HOLD(y, n, t).token;
    if (tx != ty)
      return tx > ty;
    if (S.home[x].exclusive != S.home[y].exclusive)
      return S.home[x].exclusive;
    return x > y;
  }

  static void settle_row(int t) {
    int top = NOBODY, rivals = 0, k;
    for (k = 0; k < ALL; ++k)
      if (HOLD(k, n, t).record && HOLD(k, n, t).known != known_lost
          && (top == NOBODY || outranks(k, top, t)))
        top = k;
    if (top == NOBODY)
      return;
#ifdef PARTIAL_COUNTS
    HOLD(top, n, t).known = known_whole;
#endif
    for (k = 0; k < ALL; ++k) {
      if (k == top || !HOLD(k, n, t).record
          || HOLD(k, n, t).known == known_lost
          || !(S.home[k].exclusive || S.home[top].exclusive))
        continue;
      rivals = 1;
      if (HOLD(top, n, t).known == known_whole) {
        HOLD(k, n, t).known = known_lost;
        check(S.home[k].word != has_it || S.home[top].phase == whole
                || S.home[top].word == over,
              "nobody loses against a part of what is not whole");
        to_its_home(make(lost, k, 0, t, 0));
      }
    }
    if (rivals && HOLD(top, n, t).known == unknown) {
      HOLD(top, n, t).known = asked_for;
      to_its_home(make(lost, top, 0, t | 2, 0));
    }
  }

  static void let_go(int r, int t) {
    int known = HOLD(r, n, t).known;
    if (!HOLD(r, n, t).record)
      return;
    memset(&HOLD(r, n, t), 0, sizeof(HOLD(r, n, t)));
    if (known == asked_for || known == known_whole)
      settle_row(t);
  }

  static void drop(int r) {
    int t, i;
    for (t = 0; t < TERMS; ++t) {
      if ((i = queued(n, t, r)))
        leave_queue(n, t, i - 1);
    }
    for (t = TERMS - 1; t >= 0; --t)
      let_go(r, t);
    memset(&S.far[r][n], 0, sizeof(S.far[r][n]));
  }

  static void take(int r) {
    u8 tokens[TERMS];
    int t;
    S.far[r][n].state = taking;
    for (t = 0; t < TERMS; ++t) {
      if (!(S.home[r].terms & (1 << t)) || HOLD(r, n, t).record)
        continue;
      if (in_the_way(n, t, r) || S.node[n].row[t].size > 0) {
        S.node[n].row[t].queue[S.node[n].row[t].size++] = r;
        return;
      }
      enter(r, n, t);
    }
    S.far[r][n].state = complete;
    for (t = 0; t < TERMS; ++t)
      tokens[t] = HOLD(r, n, t).token;
    to_its_home(make(granted, r, S.far[r][n].attempt, 0, tokens));
  }

  static void worker_receive(message m) {
    far_side* e = &S.far[m.r == NOBODY ? 0 : m.r][n];
    int t, left = 0;
    switch (m.what) {
      case request:
        if (e->state != none) {
          if (m.a <= e->attempt)
            return;
          drop(m.r);
        }
        e->attempt = m.a;
        e->adopt = m.x;
        memcpy(e->carried, m.t, TERMS);
        if (home_of(m.r) == n ? S.node[n].ready : S.node[n].worker_ready)
          take(m.r);
        else
          e->state = held_back;
        break;
      case abandon:
        if (e->state != none && e->attempt <= m.a)
          drop(m.r);
        break;
      case release:
        if (e->state == none)
          return;
        if (e->state != complete) {
          drop(m.r);
          return;
        }
        for (t = 0; t < TERMS; ++t)
          if (m.x == 0 || (m.x & (1 << t)))
            let_go(m.r, t);
        for (t = 0; t < TERMS; ++t)
          left |= HOLD(m.r, n, t).record;
        if (!left)
          drop(m.r);
        break;
      case raise_to:
        if (e->state != complete || e->attempt != m.a) {
          to_its_home(make(refused, m.r, m.a, 0, 0));
          return;
        }
        to_its_home(make(raised, m.r, m.a, 0, 0));
        for (t = 0; t < TERMS; ++t) {
          if (!HOLD(m.r, n, t).record)
            continue;
          if (S.home[m.r].exclusive) {
            S.node[n].row[t].counter
              = larger(S.node[n].row[t].counter, m.t[t]);
            HOLD(m.r, n, t).token = larger(HOLD(m.r, n, t).token, m.t[t]);
            S.node[n].highest = larger(S.node[n].highest, m.t[t]);
          }
          if (HOLD(m.r, n, t).known == asked_for) {
            HOLD(m.r, n, t).known = known_whole;
            settle_row(t);
          }
        }
        break;
      case hand_over:
        if (m.x == 0x80)
          return;
        S.node[n].floor = larger(S.node[n].floor, m.floor);
        S.node[n].highest = larger(S.node[n].highest, m.floor);
        if (m.r != NOBODY
            && !(e->state == complete && e->attempt == m.a)) {
          /* install */
          if (e->state != none)
            drop(m.r);
          e->state = complete;
          e->attempt = m.a;
          for (t = 0; t < TERMS; ++t) {
            if (!(m.x & (1 << t)))
              continue;
            HOLD(m.r, n, t).record = 1;
            HOLD(m.r, n, t).token = m.t[t];
            HOLD(m.r, n, t).known = known_whole;
            S.node[n].row[t].counter
              = larger(S.node[n].row[t].counter, m.t[t]);
            S.node[n].highest = larger(S.node[n].highest, m.t[t]);
            if (S.home[m.r].exclusive)
              S.node[n].row[t].issued
                = larger(S.node[n].row[t].issued, m.t[t]);
            settle_row(t);
          }
        }
        m = make(installed, NOBODY, 0, S.node[n].worker_epoch, 0);
        m.local = 1;
        put(&S.to_home[n], m);
        break;
    }
  }

  /* -- multi_node_request --------------------------------------------------- */

  static int lead_of(int r) {
    return S.home[r].part[0].state != out ? 0 : 1;
  }

  static void ask(int r, int o, int is_lead) {
    S.home[r].part[o].state = asked;
    to_part(o, make(request, r, S.home[r].attempt, !is_lead,
                    is_lead ? S.home[r].carried : S.home[r].tokens));
  }

  static void ask_others(int r) {
    int o;
    S.home[r].phase = asking_others;
    for (o = 0; o < 2; ++o)
      if (S.home[r].part[o].state == unasked)
        ask(r, o, o == lead_of(r));
  }

  static void ask_lead(int r) {
    S.home[r].phase = asking_lead;
    ask(r, lead_of(r), 1);
#ifdef ALL_AT_ONCE
    ask_others(r);
#endif
  }

  static void ask_new_lead(int r) {
    home_side* h = &S.home[r];
    int t;
    ++h->attempt;
    for (t = 0; t < TERMS; ++t) {
      h->carried[t] = larger(h->carried[t], h->tokens[t]);
      h->tokens[t] = 0;
    }
    ask_lead(r);
  }

  static void stop(int r) {
    home_side* h = &S.home[r];
    h->phase = ended;
    h->attempt = h->left = h->listed = 0;
    memset(h->carried, 0, sizeof(h->carried));
    memset(h->tokens, 0, sizeof(h->tokens));
    memset(h->part, 0, sizeof(h->part));
  }

  static void abandon_all(int r) {
    int o;
    for (o = 0; o < 2; ++o)
#ifdef FORGETS_ABANDON
      if (S.home[r].part[o].state > asked)
#else
      if (S.home[r].part[o].state > unasked)
#endif
        to_part(o, make(abandon, r, S.home[r].attempt, 0, 0));
  }

  /* end, and what scope_actor makes of it. */
  static void end(int r) {
    abandon_all(r);
    stop(r);
    check(S.home[r].word == pending || S.home[r].word == over,
          "a request ends once");
    S.home[r].word = over;
  }

  static void give_back_and_ask_again(int r) {
    int o;
    abandon_all(r);
    for (o = 0; o < 2; ++o) {
      S.home[r].part[o].state
        = S.home[r].part[o].state == out ? out : unasked;
      memset(S.home[r].part[o].tokens, 0, TERMS);
    }
    ask_new_lead(r);
  }

  /* These terms, all if 0. */
  static void give_up(int r, int which) {
    home_side* h = &S.home[r];
    int o, all;
    if (h->phase != whole)
      return;
    h->left &= ~(which ? which : 0xff);
    all = h->left == 0;
    for (o = 0; o < 2; ++o) {
      if (h->part[o].state == out)
        continue;
#ifdef RELEASES_LEAD_ONLY
      if (o != lead_of(r))
        continue;
#endif
      to_part(o, make(release, r, 0, all ? 0 : which, 0));
    }
    if (all)
      stop(r);
  }

  /* Whether what r's home knows of its part on node o is so now. */
  static int in_touch(int r, int o) {
    return home_of(r) == o
           || (linked_now(home_of(r)) && S.node[o].worker_epoch == S.epoch);
  }

  /* effect::whole: its client is told, if it has not ended it meanwhile. */
  static void tell_client(int r) {
    home_side* h = &S.home[r];
    int o, t, k;
    if (h->word != pending) {
      give_up(r, 0);
      return;
    }
    h->word = has_it;
    for (o = 0; o < 2; ++o) {
      if (h->part[o].state == out)
        continue;
      for (t = 0; t < TERMS; ++t) {
        if (!(h->terms & (1 << t)))
          continue;
        if (in_touch(r, o)) {
          check(S.far[r][o].state == complete && HOLD(r, o, t).record,
                "a grant is told when it is whole");
          check(!h->exclusive || HOLD(r, o, t).token == h->tokens[t],
                "all nodes have the token that the client gets");
          /* It has met a hold that was handed over, and will hear of it. */
          if (HOLD(r, o, t).known == known_lost
              || HOLD(r, o, t).known == asked_for)
            continue;
          check(!h->exclusive || h->tokens[t] > S.node[o].row[t].issued,
                "tokens increase");
          for (k = 0; k < ALL; ++k)
            check(!(k != r && S.home[k].word == has_it
                    && (S.home[k].left & ~S.home[k].gone & (1 << t))
                    && (S.home[k].exclusive || h->exclusive)
                    && S.home[k].part[o].state != out && in_touch(k, o)
                    && (home_of(k) == o || S.node[o].peer == settled)),
                  "nobody else has it");
        }
        if (h->exclusive)
          S.node[o].row[t].issued
            = larger(S.node[o].row[t].issued, h->tokens[t]);
      }
    }
  }

  static int is_behind(int r, int o) {
    int t;
    for (t = 0; t < TERMS; ++t)
      if ((S.home[r].terms & (1 << t)) && S.home[r].exclusive
          && S.home[r].part[o].tokens[t] < S.home[r].tokens[t])
        return 1;
    return 0;
  }

  static void raise_or_finish(int r) {
    home_side* h = &S.home[r];
    int o;
    for (o = 0; o < 2; ++o)
      if (h->part[o].state == asked)
        return;
#ifndef NO_RAISE
    for (o = 0; o < 2; ++o)
      if (h->part[o].state == held && is_behind(r, o)) {
        if (h->exclusive)
          memcpy(h->part[o].tokens, h->tokens, TERMS);
        h->part[o].state = in_raise;
        to_part(o, make(raise_to, r, h->attempt, 0, h->part[o].tokens));
      }
#endif
    for (o = 0; o < 2; ++o)
      if (h->part[o].state == in_raise) {
        h->phase = raising;
        return;
      }
    h->phase = whole;
    tell_client(r);
  }

  static void view_changed(int r, int view) {
    home_side* h = &S.home[r];
    int lead, o;
    if (h->phase == idle || h->phase == ended)
      return;
    lead = lead_of(r);
    for (o = 0; o < 2; ++o)
      if (!(view & (1 << o)))
        memset(&h->part[o], 0, sizeof(h->part[o]));
    if (h->phase == whole)
      return;
    if (((view & 1) ? 0 : 1) != lead) {
      abandon_all(r);
      for (o = 0; o < 2; ++o) {
        memset(&h->part[o], 0, sizeof(h->part[o]));
        if (view & (1 << o))
          h->part[o].state = unasked;
      }
      ask_new_lead(r);
      return;
    }
    for (o = 0; o < 2; ++o)
      if ((view & (1 << o)) && h->part[o].state == out)
        h->part[o].state = unasked;
    if (h->phase == asking_lead)
      return;
    ask_others(r);
    raise_or_finish(r);
  }

  static void node_gone(int r, int o) {
    home_side* h = &S.home[r];
    if (h->phase == idle || h->phase == ended || h->part[o].state == out)
      return;
    if (h->phase == whole) {
      /* lose */
      memset(&h->part[o], 0, sizeof(h->part[o]));
      h->gone |= h->left;
      give_up(r, 0);
      return;
    }
    h->part[o].state = unasked;
    end(r);
  }

  static void request_lost(int r, int from, int t, int if_partial) {
    home_side* h = &S.home[r];
#ifdef LOST_BEFORE_GRANTED
    if (h->part[from].state != held && h->part[from].state != in_raise)
      return;
#else
    if (h->part[from].state == out || h->part[from].state == unasked)
      return;
#endif
    if (h->phase != whole) {
      give_back_and_ask_again(r);
      return;
    }
    if (!(h->left & (1 << t)))
      return;
    if (if_partial) {
      to_part(from, make(raise_to, r, h->attempt, 0, h->part[from].tokens));
      return;
    }
    h->gone |= 1 << t;
    give_up(r, 1 << t);
  }

  /* -- coordinator ---------------------------------------------------------- */

  static int view(void) {
    return (1 << n) | (S.node[n].in_view << (1 - n));
  }

  static int must_wait(int r) {
    home_side* h = &S.home[r];
    return !S.node[n].ready
           || (!h->every && (h->listed & (1 << (1 - n)))
               && S.node[n].peer == linked);
  }

  static void start(int r) {
    home_side* h = &S.home[r];
    int set = h->every ? view() : h->listed;
    int o, t;
    if (set & ~view()) {
      end(r);
      return;
    }
    for (o = 0; o < 2; ++o)
      if (set & (1 << o))
        h->part[o].state = unasked;
    for (t = 0; t < TERMS; ++t)
      h->carried[t] = larger(S.node[n].row[t].counter, S.node[n].floor);
    ask_lead(r);
  }

  static void leave_view(void) {
    S.node[n].installing = 0;
    if (!S.node[n].in_view)
      return;
    S.node[n].in_view = 0;
    changes.view = changes.left = 1;
  }

  static void enter_view(void) {
    changes.view |= !S.node[n].in_view;
    S.node[n].in_view = 1;
    changes.hand_over = 1;
  }

  static void resolve(int state) {
    S.node[n].peer = state;
    changes.resolved = 1;
    S.node[n].joined |= state != linked && state != unheard;
    if (S.node[n].open && !S.node[n].ready && state != linked
        && state != unheard)
      S.node[n].ready = changes.ready = 1;
  }

  static void hand_over_to_peer(void) {
    message m = make(hand_over, NOBODY, 0, 0, 0);
    int r;
    m.floor = S.node[n].highest;
    for (r = n; r < ALL; r += 2) {
      home_side* h = &S.home[r];
      if (!h->every || h->phase != whole)
        continue;
      /* One client, one hold: so there is nothing to list. */
      check(m.r == NOBODY, "a node has one hold to hand over");
      if (h->part[1 - n].state == out) {
        h->part[1 - n].state = held;
        memcpy(h->part[1 - n].tokens, h->tokens, TERMS);
      }
#ifndef NO_HAND_OVER
      m.r = r; m.a = h->attempt; m.x = h->left;
      memcpy(m.t, h->tokens, TERMS);
#endif
    }
    if (linked_now(n)) {
      put(&S.to_home[1 - n], m);
      put(&S.to_worker[1 - n], m);
    }
  }

  static void apply(void) {
    int r;
    if (changes.left)
      for (r = n; r < ALL; r += 2)
        if (!S.home[r].every)
          node_gone(r, 1 - n);
    if (changes.greet)
      to_peers_home(make(scope_opened, NOBODY, 0, 0, 0));
    if (changes.decline)
      to_peers_home(make(hand_over, NOBODY, 0, 0x80, 0));
    if (changes.hand_over)
      hand_over_to_peer();
    if (changes.view)
      for (r = n; r < ALL; r += 2)
        if (S.home[r].every)
          view_changed(r, view());
    if (changes.ready)
      for (r = n; r < ALL; r += 2)
        if (S.far[r][n].state == held_back)
          take(r);
    if (changes.resolved || changes.ready)
      for (r = n; r < ALL; r += 2)
        if (S.home[r].phase == idle && !must_wait(r))
          start(r);
    memset(&changes, 0, sizeof(changes));
  }

  static void home_receive(int from, message m) {
    home_side* h = &S.home[m.r == NOBODY ? 0 : m.r];
    int t, state;
    switch (m.what) {
      case granted:
        state = h->part[from].state;
        if (h->phase == ended || state == out || state == unasked
#ifndef BELIEVES_OLD_ATTEMPT
            || m.a != h->attempt
#endif
        ) {
          to_part(from, make(abandon, m.r, m.a, 0, 0));
          return;
        }
        if (state != asked)
          return;
        h->part[from].state = held;
        memcpy(h->part[from].tokens, m.t, TERMS);
        for (t = 0; t < TERMS; ++t)
          h->tokens[t] = larger(h->tokens[t], m.t[t]);
        if (h->phase == asking_lead)
          ask_others(m.r);
        raise_or_finish(m.r);
        break;
      case refused:
        state = h->part[from].state;
        if (h->phase == ended || h->phase == whole || m.a != h->attempt
            || state == out || state == unasked)
          return;
        h->part[from].state = unasked;
        end(m.r);
        break;
      case raised:
        if (h->phase == ended || h->phase == whole || m.a != h->attempt
            || h->part[from].state != in_raise)
          return;
        h->part[from].state = held;
        raise_or_finish(m.r);
        break;
      case lost:
        if (h->phase == ended)
          to_part(from, make(release, m.r, 0, 0, 0));
        else
          request_lost(m.r, from, m.x & 1, m.x & 2);
        break;
      case scope_opened:
        if (!S.node[n].open) {
          changes.decline = 1;
        } else {
          if (S.node[n].peer == absent)
            resolve(settled);
          enter_view();
        }
        apply();
        break;
      case hand_over:
        if (!S.node[n].open)
          return;
        if (m.x != 0x80) {
          S.node[n].installing = 1;
          return;
        }
        leave_view();
        resolve(absent);
        apply();
        break;
      case installed:
        if (m.x == 0 || m.x != S.node[n].home_epoch || !S.node[n].installing
            || !S.node[n].open)
          return;
        S.node[n].installing = 0;
        if (!S.node[n].in_view)
          enter_view();
        resolve(settled);
        apply();
        break;
      case link_up:
        S.node[n].home_epoch = m.x;
        if (S.node[n].open) {
          S.node[n].peer = linked;
          changes.greet = 1;
        }
        apply();
        break;
      case link_down:
        S.node[n].home_epoch = 0;
        leave_view();
        if (S.node[n].open)
          resolve(down);
        apply();
        break;
    }
  }

  /* -- steps ---------------------------------------------------------------- */

  /* M2 to M6 of multi_node_request.hpp. */
  static void check_invariants(void) {
    int r, o;
#ifdef ALL_AT_ONCE
    return; /* what it does shows only in the end */
#endif
    for (r = 0; r < ALL; ++r) {
      home_side* h = &S.home[r];
      int count[5] = {0, 0, 0, 0, 0};
      int lead = h->part[lead_of(r)].state;
      for (o = 0; o < 2; ++o)
        ++count[h->part[o].state];
      switch (h->phase) {
        case ended: case idle:
          check(count[out] == 2, "M6: no parts");
          break;
        case asking_lead:
          check(lead == asked && count[asked] == 1 && !count[held]
                && !count[in_raise], "M2: only the lead is asked");
          break;
        case asking_others:
          check(count[asked] > 0 && !count[unasked]
                && (lead == held || lead == in_raise),
                "M3: the lead is held, all others are asked");
          break;
        case raising:
          check(count[in_raise] > 0 && !count[asked] && !count[unasked],
                "M4: all are held, some are being raised");
          break;
        case whole:
          check(!count[in_raise] && !count[asked] && !count[unasked],
                "M5: all are held");
          break;
      }
    }
  }

  /* When all has been said, what was told to clients excludes each other. */
  static void check_holds(void) {
    int r, k, o, t;
    if (S.epoch == 0)
      return;
    for (o = 0; o < 2; ++o)
      if (S.to_home[o].size || S.to_worker[o].size || S.unsent[o].size
          || !linked_now(o) || S.node[o].peer != settled)
        return;
    for (r = 0; r < ALL; ++r)
      for (k = 0; k < r; ++k)
        for (o = 0; o < 2; ++o)
          for (t = 0; t < TERMS; ++t)
            check(!(S.home[r].word == has_it && S.home[k].word == has_it
                    && (S.home[r].left & S.home[k].left & (1 << t))
                    && S.home[r].part[o].state != out
                    && S.home[k].part[o].state != out
                    && (S.home[r].exclusive || S.home[k].exclusive)),
                  "where holds have met, one is left");
  }

  static void begin(int o) {
    n = o;
    by_peers_worker = 0;
    own_first = own_last = 0;
  }

  /* What the node says to itself comes before anything else. */
  static void finish(void) {
    while (own_first < own_last) {
      message m = own[own_first++];
      switch (m.what) {
        case request: case abandon: case release: case raise_to:
          worker_receive(m);
          break;
        default:
          home_receive(n, m);
      }
    }
    check_invariants();
    check_holds();
  }

  static void deliver_home(int o) {
    message m;
    begin(o);
    m = take_out(&S.to_home[o], 0);
    home_receive(m.local ? o : 1 - o, m);
    finish();
  }

  static void deliver_worker(int o) {
    node* x = &S.node[o];
    message m = take_out(&S.to_worker[o], 0);
    int r;
    begin(o);
    by_peers_worker = 1;
    if (m.what == link_down) {
      x->worker_epoch = x->worker_ready = 0;
#ifndef KEEPS_OLD_EPOCH
      for (r = 1 - o; r < ALL; r += 2)
        if (S.far[r][o].state != none)
          drop(r);
#endif
    } else if (x->open) {
      if (x->worker_epoch != S.epoch) {
        x->worker_epoch = S.epoch;
        x->worker_ready = x->ready;
      }
      worker_receive(m);
    }
    finish();
  }

  /* work::ready */
  static void make_worker_ready(int o) {
    int r;
    begin(o);
    by_peers_worker = 1;
    S.node[o].worker_ready = 1;
    for (r = 1 - o; r < ALL; r += 2)
      if (S.far[r][o].state == held_back)
        take(r);
    finish();
  }

  static void flush(int o) {
    put(&S.to_worker[1 - o], take_out(&S.unsent[o], 0));
  }

  static int grantable(int o, int t) {
    return S.node[o].row[t].size > 0
           && !in_the_way(o, t, S.node[o].row[t].queue[0]);
  }

  /* local_locks::manage; the worker hears of it later. */
  static void grant(int o, int t) {
    int r = S.node[o].row[t].queue[0];
    begin(o);
    leave_queue(o, t, 0);
    enter(r, o, t);
    S.far[r][o].hears = 1;
    finish();
  }

  /* worker::settled */
  static void hear(int r, int o) {
    begin(o);
    by_peers_worker = home_of(r) != o;
    S.far[r][o].hears = 0;
    take(r);
    finish();
  }

  /* worker::take_result, of a waiter that ended otherwise. */
  static void refuse_part(int r, int o) {
    int a = S.far[r][o].attempt;
    begin(o);
    by_peers_worker = home_of(r) != o;
    --S.ends;
    drop(r);
    to_its_home(make(refused, r, a, 0, 0));
    finish();
  }

  static int busy(int r) {
    return S.home[r].phase != ended || S.home[r].posted
           || S.home[r].word == pending || S.home[r].word == has_it;
  }

  /* The next request of the client of node o. */
  static int next_of(int o) {
    int r;
    for (r = o; r < ALL; r += 2) {
      if (S.home[r].word == nothing)
        return r;
      if (busy(r))
        return NOBODY;
    }
    return NOBODY;
  }

  static void open_request(int o, int kind, int terms, int exclusive) {
    int r = next_of(o);
    home_side* h = &S.home[r];
    begin(o);
    h->every = kind == 1;
    h->listed = kind == 2 ? 3 : kind == 4 ? 1 : kind == 8 ? 2 : 0;
    h->terms = h->left = terms;
    h->exclusive = exclusive;
    h->word = pending;
    h->phase = idle;
    if (!must_wait(r))
      start(r);
    finish();
  }

  static void cancel(int r) {
    --S.ends;
    S.home[r].word = over;
    S.home[r].posted = 1;
  }

  static void let_go_by_client(int r) {
    S.home[r].word = over;
    S.home[r].posted = 1;
  }

  static void handle_posted(int r) {
    begin(home_of(r));
    S.home[r].posted = 0;
    if (S.home[r].phase == whole)
      give_up(r, 0);
    else if (S.home[r].phase != ended)
      end(r);
    finish();
  }

  static void open_scope(int o) {
    node* x = &S.node[o];
    begin(o);
    x->open = 1;
    x->peer = unheard;
    if (x->home_epoch != 0) {
      x->peer = linked;
      changes.greet = 1;
    }
#ifdef READY_AT_ONCE
    x->ready = changes.ready = 1;
#endif
    apply();
    finish();
  }

  /* membership::tick: nobody has been heard of in time. */
  static void time_out(int o) {
    begin(o);
    resolve(down);
    apply();
    finish();
  }

  static void break_link(int who) {
    int o, i;
    memset(S.to_worker, 0, sizeof(S.to_worker));
    memset(S.unsent, 0, sizeof(S.unsent));
    S.epoch = 0;
    for (o = 0; o < 2; ++o) {
      for (i = 0; i < S.to_home[o].size;)
        if (S.to_home[o].at[i].local && (who & (1 << o)))
          ++i;
        else
          take_out(&S.to_home[o], i);
      if (!(who & (1 << o)))
        continue;
      if (S.node[o].home_epoch != 0)
        put(&S.to_home[o], make(link_down, NOBODY, 0, 0, 0));
      if (S.node[o].worker_epoch != 0)
        put(&S.to_worker[o], make(link_down, NOBODY, 0, 0, 0));
    }
  }

  static void come_up(void) {
    S.epoch = S.next_epoch++;
    put(&S.to_home[0], make(link_up, NOBODY, 0, S.epoch, 0));
    put(&S.to_home[1], make(link_up, NOBODY, 0, S.epoch, 0));
  }

  /* Node 1 is killed, with all that is on it. */
  static void kill_node(void) {
    node* x = &S.node[1];
    int r, t;
    --S.kills;
    break_link(1);
    for (r = 0; r < ALL; ++r) {
      memset(&S.far[r][1], 0, sizeof(S.far[r][1]));
      if (home_of(r) == 1 && S.home[r].word != nothing) {
        stop(r);
        S.home[r].word = over;
        S.home[r].posted = 0;
      }
    }
    for (t = 0; t < TERMS; ++t) {
      /* It starts above all that it has issued. */
      x->floor = larger(x->floor, x->row[t].counter);
      x->row[t].size = 0;
      memset(x->row[t].queue, 0, ALL);
    }
    x->highest = x->floor;
    x->open = x->ready = x->peer = x->in_view = x->installing = 0;
    x->joined = 0;
    x->home_epoch = x->worker_epoch = x->worker_ready = 0;
  }

  static int over_and_quiet(void) {
    int r, o;
    for (r = 0; r < ALL; ++r)
      if (S.home[r].word != over || S.home[r].posted || S.far[r][0].hears
          || S.far[r][1].hears)
        return 0;
    for (o = 0; o < 2; ++o)
      if (S.to_home[o].size || S.to_worker[o].size || S.unsent[o].size)
        return 0;
    return 1;
  }

  static void nothing_is_left(void) {
    int r, o, t;
    for (r = 0; r < ALL; ++r) {
      check(S.home[r].phase == ended, "no request is left at its home");
      for (o = 0; o < 2; ++o) {
        check(S.far[r][o].state == none, "no part is left");
        for (t = 0; t < TERMS; ++t)
          check(!HOLD(r, o, t).record && !S.node[o].row[t].size,
                "nothing is left in a row");
      }
    }
  }

  static void look_what_can_happen(void) {
    int o, r, t;
    for (o = 0; o < 2; ++o) {
      S.can.ask[o] = S.node[o].open && next_of(o) != NOBODY;
      S.can.time_out[o] = S.node[o].open && S.node[o].peer == unheard;
      for (t = 0; t < TERMS; ++t)
        S.can.grant[o][t] = grantable(o, t);
      for (r = 0; r < ALL; ++r)
        S.can.refuse[r][o] = S.ends > 0 && S.far[r][o].state == taking
                             && !S.far[r][o].hears;
    }
    for (r = 0; r < ALL; ++r) {
      S.can.cancel[r] = S.ends > 0 && S.home[r].word == pending;
      S.can.release[r] = S.home[r].word == has_it;
    }
    S.can.come_up = S.epoch == 0 && !S.to_home[0].size && !S.to_home[1].size
                    && !S.to_worker[0].size && !S.to_worker[1].size;
    S.can.finish = over_and_quiet();
  }

  /* For reading a trail: SHOW=1 ./pan -r */
  static void show(void) {
    static const char* phases[] = {"ended", "idle", "asking_lead",
                                   "asking_others", "raising", "whole"};
    static const char* words[] = {"nothing", "pending", "has_it", "over"};
    int r, o, t, i;
    if (!getenv("SHOW"))
      return;
    printf("\tlink %d\n", S.epoch);
    for (r = 0; r < ALL; ++r) {
      home_side* h = &S.home[r];
      printf("\t%d %s %s attempt %d parts %d %d token %d every %d\n", r,
             words[h->word], phases[h->phase], h->attempt, h->part[0].state,
             h->part[1].state, h->tokens[0], h->every);
    }
    for (o = 0; o < 2; ++o) {
      node* x = &S.node[o];
      printf("\tnode %d: epochs %d %d, peer %d, view %d, installing %d;", o,
             x->home_epoch, x->worker_epoch, x->peer, x->in_view,
             x->installing);
      for (t = 0; t < TERMS; ++t)
        for (r = 0; r < ALL; ++r)
          if (HOLD(r, o, t).record)
            printf(" %d has %d token %d known %d;", r, t, HOLD(r, o, t).token,
                   HOLD(r, o, t).known);
          else if (S.far[r][o].state)
            printf(" %d at %d;", r, S.far[r][o].state);
      printf("\n\t  to home:");
      for (i = 0; i < S.to_home[o].size; ++i)
        printf(" %d(%d.%d %d)", S.to_home[o].at[i].what, S.to_home[o].at[i].r,
               S.to_home[o].at[i].a, S.to_home[o].at[i].x);
      printf("  to worker:");
      for (i = 0; i < S.to_worker[o].size; ++i)
        printf(" %d(%d.%d %d)", S.to_worker[o].at[i].what,
               S.to_worker[o].at[i].r, S.to_worker[o].at[i].a,
               S.to_worker[o].at[i].x);
      printf("\n");
    }
  }

  static void at_first(void) {
    int o;
    memset(&S, 0, sizeof(S));
    S.next_epoch = 1;
    for (o = 0; o < 2; ++o) {
      node* x = &S.node[o];
      x->floor = x->highest = 2;
#ifdef JOINING
      if (o == 1 || JOINING == 2)
        continue;
      x->open = x->ready = x->joined = 1;
      x->peer = down;
#else
      x->open = x->ready = x->joined = x->in_view = x->worker_ready = 1;
      x->peer = settled;
      x->home_epoch = x->worker_epoch = S.epoch = 1;
      S.next_epoch = 2;
#endif
    }
  }
}

#define STEP(guard, action) \
  :: atomic { c_expr { guard } -> c_code { action; look_what_can_happen(); show(); } }

#if KINDS & 1
#define OF_KIND_1(o, terms, mode) ASK(o, 1, terms, mode)
#else
#define OF_KIND_1(o, terms, mode)
#endif
#if KINDS & 2
#define OF_KIND_2(o, terms, mode) ASK(o, 2, terms, mode)
#else
#define OF_KIND_2(o, terms, mode)
#endif
#if KINDS & 4
#define OF_KIND_4(o, terms, mode) ASK(o, 4, terms, mode)
#else
#define OF_KIND_4(o, terms, mode)
#endif
#if KINDS & 8
#define OF_KIND_8(o, terms, mode) ASK(o, 8, terms, mode)
#else
#define OF_KIND_8(o, terms, mode)
#endif
#define OF_TERMS(o, terms, mode) OF_KIND_1(o, terms, mode) \
  OF_KIND_2(o, terms, mode) OF_KIND_4(o, terms, mode) OF_KIND_8(o, terms, mode)
#if WHAT & 1
#define TERM_1(o, mode) OF_TERMS(o, 1, mode)
#else
#define TERM_1(o, mode)
#endif
#if WHAT & 2
#define TERM_2(o, mode) OF_TERMS(o, 2, mode)
#else
#define TERM_2(o, mode)
#endif
#if WHAT & 4
#define TERM_3(o, mode) OF_TERMS(o, 3, mode)
#else
#define TERM_3(o, mode)
#endif
#define ANY_TERM(o, mode) TERM_1(o, mode) TERM_2(o, mode) TERM_3(o, mode)

#define ASK(o, kind, terms, mode) \
  STEP(now.s.can.ask[o], open_request(o, kind, terms, mode))

#define NODE(o) \
  ANY_TERM(o, 1) \
  STEP(now.s.to_home[o].size, deliver_home(o)) \
  STEP(now.s.to_worker[o].size, deliver_worker(o)) \
  STEP(now.s.unsent[o].size, flush(o)) \
  STEP(now.s.node[o].worker_epoch && now.s.node[o].ready && \
       !now.s.node[o].worker_ready, make_worker_ready(o)) \
  STEP(!now.s.node[o].open, open_scope(o)) \
  STEP(now.s.can.time_out[o], time_out(o)) \
  STEP(now.s.can.grant[o][0], grant(o, 0))

#define PART(r, o) \
  STEP(now.s.far[r][o].hears, hear(r, o)) \
  STEP(now.s.can.refuse[r][o], refuse_part(r, o))

#define CLIENT(r) \
  STEP(now.s.can.cancel[r], cancel(r)) \
  STEP(now.s.can.release[r], let_go_by_client(r)) \
  STEP(now.s.home[r].posted, handle_posted(r)) \
  PART(r, 0) \
  PART(r, 1)

init {
  /* How much happens; also less: who is stuck is not to be saved by what may
   * yet happen. */
  atomic {
    c_code { at_first(); }
    if
    :: c_code { now.s.ends = 0; }
#if ENDS > 0
    :: c_code { now.s.ends = ENDS; }
#endif
    fi;
    if
    :: c_code { now.s.breaks = 0; }
#if BREAKS > 0
    :: c_code { now.s.breaks = BREAKS; }
#endif
    fi;
    if
    :: c_code { now.s.kills = 0; }
#if KILLS > 0
    :: c_code { now.s.kills = KILLS; }
#endif
    fi;
    c_code { look_what_can_happen(); }
  }
  do
  NODE(0)
  NODE(1)
  CLIENT(0)
  CLIENT(1)
#if ROUNDS > 1
  CLIENT(2)
  CLIENT(3)
#endif
#if TERMS > 1
  STEP(now.s.can.grant[0][1], grant(0, 1))
  STEP(now.s.can.grant[1][1], grant(1, 1))
#endif
#ifdef SHARES
  ANY_TERM(0, 0)
  ANY_TERM(1, 0)
#endif
  STEP(now.s.breaks && now.s.epoch, --now.s.breaks; break_link(3))
  STEP(now.s.kills && now.s.node[1].open, kill_node())
  STEP(now.s.can.come_up, come_up())
  :: atomic { c_expr { now.s.can.finish } -> c_code { nothing_is_left(); } }
     break
  od
}
