/* Walks: the search for deadlocks over nodes, and its confirmation at the homes.
 *
 * What is modelled: walk (start, receive, begin, go_on, explore_here, ask, learn,
 * confirm, accept, pass_verdict, sentence, end), wait_for_graph (reach, add,
 * remove, ask_again, find_cycle, youngest), what scope_actor answers (waits_of,
 * blockers_of, waits_here, standing_of, still_pending, how_in_the_way,
 * sentence), lock_table::blockers and gate_of, and who begins a walk: worker
 * (take, begin_walk, waits_elsewhere, look_at_what_is_kept),
 * scope_state::seek_deadlock and left_waiting, pending::start,
 * scope_actor::handle(open), walks::sentence and peer_back. Below that, of
 * coordinator, worker and multi_node_request what it takes to make and to end
 * waits: the lead, then the others, granted, abandon, release, waits_elsewhere,
 * give back and ask again; of lock_table: a session is granted all that one
 * grant covers, and what it has left keeps a row exclusive. Names as in the
 * code.
 *
 * Each event of an actor is one step, written in C inside c_code, so that it can
 * be read beside the code. On one node the scope's actor and the worker of a
 * peer are two: a link delivers to each in order, and nothing orders what the two
 * have received. (A worker may hear of a grant before it has seen what had
 * arrived by then. The code's inbox forbids that; the model has more runs.)
 * Requests wait at the link and are overtaken by everything else. A walk that is
 * to begin begins some time later: that covers the grace of patient ones.
 *
 * Who runs: SCRIPT says which sessions live where and what they ask for. They
 * ask and release at any time; a wait may end at any time (deadline, cancel; ENDS
 * in all). Scripts from 9 on are small: they begin with holds and waits that are
 * there already, and in some of them most holds are released only when nothing
 * else is going on. A link may be missing at first (CUT), with walks that are
 * remembered for when it is there; each end hears of it at another time.
 *
 * What is asserted: a verdict hits a wait that was in a cycle, at some instant,
 * as that of its youngest session; what is given back was the youngest's part in
 * a cycle of partial grants; where only one cycle can be, there is one verdict;
 * when all is quiet, nobody waits in a cycle: none was missed. In the end nothing
 * is left. The truth about who waits for whom, and since when, is told by ghosts
 * from rows, queues and words at once.
 *
 * An age is "nothing" or "something", ties by session: of two sessions that hold
 * something the Lamport times may be in either order, so nothing is lost, but
 * for an order against the numbers of the sessions.
 *
 * Not modelled: shared requests beyond one that waits for exclusive holds, with
 * nobody ahead of it (so of lock_table::blockers neither `because_of` nor
 * `except`), upgrades, downgrades, several terms in one request, views, links
 * that break with what is held or asked over them (peer_gone, own_ends), waits
 * that a peer has no answer for, limits, queues that are attached while a walk
 * looks.
 *
 * A trail is read with: SHOW=1 ./pan -r walk.pml.trail
 *
 * Faults, each with -D; spin finds every one of them:
 *   NO_CONFIRMATION       what was seen is believed: a cycle that never was
 *   ORIGIN_IS_VICTIM      the origin of the walk is told, not the youngest
 *   TELLS_PARTIAL         a cycle of partial grants is told
 *   HOME_BEGINS           the home begins the walk when it asks, not the node
 *                         when the wait is entered
 *   FORGETS_ELSEWHERE     a node that is asked is not told that the session
 *                         waits elsewhere, too
 *   ELSEWHERE_OVERTAKES   waits_elsewhere overtakes its request at the link, and
 *                         is forgotten where it comes
 *   INLINE_UNTOLD         a session that waits elsewhere is granted a first lock
 *                         on the fast path, and nobody tells the nodes that it
 *                         has asked: they begin no walk
 *   HELD_UNTOLD           waits_elsewhere comes when the part is held already:
 *                         no walk begins, though others wait for it now
 *   AGE_AS_ASKED          a request says what its session held when it was made,
 *                         and which of its others wait when it is opened: one
 *                         that was granted in between is in neither
 *   SILENT_WHEN_OVER      a home that is asked with a wait that is over, or with
 *                         none, says that nothing of the session is in the way:
 *                         what it holds is struck out of the search
 *   LATE_UNTOLD           a `deadlock` that comes after the grant begins no walk
 *   BETWEEN_COUNTS        who stands between two requests of a session, of which
 *                         the first will let the second in, is named as in the
 *                         way of the second
 *   LEFT_UNTOLD           the first of them ends without a grant, and no walk
 *                         begins
 *   BACK_TOO_SOON         a link that is there again is not noticed by a walk that
 *                         has done without it and still goes on
 *   KEPT_UNTOLD           an exclusive hold goes, another one of its session
 *                         keeps the row exclusive, and no walk begins
 *   ASKS_ONCE             a walk does not ask again what is in the way of a
 *                         shared wait when the hold that it was told of is over
 * INLINE_UNTOLD, ELSEWHERE_OVERTAKES, HELD_UNTOLD, AGE_AS_ASKED and
 * SILENT_WHEN_OVER were found by this model, or on the way to it, in the code;
 * those after them by the simulator.
 */

#ifndef SCRIPT
#define SCRIPT 1
#endif
#ifndef ENDS
#define ENDS 0
#endif
/* CALM: the first two sessions release only when nothing else is going on. */

/* Who asks for what. A request is asked when those before it of its session are
 * granted, or with TOGETHER while they are pending, too. HOME(session, node);
 * ASK(session, which of two, term, nodes as bits), or REQUEST_OF(session,
 * request, term, nodes): for its home alone it is a direct one. SHARED(request)
 * is for a reader. AT_FIRST says what there is before anything else:
 * GRANTED(request), AT_LEAD(request): it has its part there and waits on the
 * other node, QUEUED(request). */
#if SCRIPT == 1 /* a ring of two sessions over two nodes */
#define NODES 2
#define SESSIONS 2
#define TERMS 2
#define PLAY HOME(0, 0) HOME(1, 1) \
  ASK(0, 0, 0, 1) ASK(0, 1, 1, 2) ASK(1, 0, 1, 2) ASK(1, 1, 0, 1)
#elif SCRIPT == 2 /* a ring of three sessions over three nodes */
#define NODES 3
#define SESSIONS 3
#define TERMS 3
#define PLAY HOME(0, 0) HOME(1, 1) HOME(2, 2) \
  ASK(0, 0, 0, 1) ASK(0, 1, 1, 2) ASK(1, 0, 1, 2) ASK(1, 1, 2, 4) \
  ASK(2, 0, 2, 4) ASK(2, 1, 0, 1)
#elif SCRIPT == 3 /* a place in a queue of a session that waits elsewhere */
#define NODES 2
#define SESSIONS 3
#define TERMS 2
#define TOGETHER
#define PLAY HOME(0, 0) HOME(1, 1) HOME(2, 1) \
  ASK(0, 0, 0, 2) ASK(0, 1, 1, 1) ASK(1, 0, 1, 1) ASK(1, 1, 0, 2) \
  ASK(2, 0, 0, 2)
#define AT_FIRST GRANTED(4)
#elif SCRIPT == 7 /* the same over three nodes */
#define NODES 3
#define SESSIONS 3
#define TERMS 2
#define TOGETHER
#define PLAY HOME(0, 2) HOME(1, 1) HOME(2, 1) \
  ASK(0, 0, 0, 2) ASK(0, 1, 1, 1) ASK(1, 0, 1, 1) ASK(1, 1, 0, 2) \
  ASK(2, 0, 0, 2)
#define AT_FIRST GRANTED(4)
#elif SCRIPT == 8 /* two requests of one session, over three nodes */
#define NODES 3
#define LETTERS 9
#define SESSIONS 2
#define TERMS 2
#define TOGETHER
#define PLAY HOME(0, 2) HOME(1, 1) \
  ASK(0, 0, 0, 2) ASK(0, 1, 1, 1) ASK(1, 0, 1, 1) ASK(1, 1, 0, 2)
#elif SCRIPT == 4 /* a hold taken while a request is on its way */
#define NODES 2
#define SESSIONS 2
#define TERMS 2
#define TOGETHER
#define PLAY HOME(0, 0) HOME(1, 1) \
  ASK(0, 0, 0, 2) ASK(0, 1, 1, 1) ASK(1, 0, 0, 2) ASK(1, 1, 1, 1)
#elif SCRIPT == 5 /* parts of two requests with different leads */
#define NODES 3
#define SESSIONS 2
#define TERMS 1
#define PLAY HOME(0, 0) HOME(1, 1) \
  ASK(0, 0, 0, 7) ASK(1, 0, 0, 6)
#elif SCRIPT == 6 /* the same, and a hold that makes the cycle a true one */
#define NODES 3
#define SESSIONS 2
#define TERMS 2
#define PLAY HOME(0, 0) HOME(1, 1) \
  ASK(0, 0, 1, 1) ASK(0, 1, 0, 6) ASK(1, 0, 0, 4) ASK(1, 1, 1, 1)
#elif SCRIPT == 9 /* a hold that the victim has by the time of the verdict */
#define NODES 3
#define SESSIONS 3
#define TERMS 2
#define Q 6
#define MOST 4
#define TOGETHER
#define PLAY HOME(0, 1) HOME(1, 2) HOME(2, 0) \
  REQUEST_OF(0, 0, 0, 2) REQUEST_OF(0, 1, 0, 1) \
  REQUEST_OF(1, 2, 1, 2) REQUEST_OF(1, 3, 0, 1) \
  REQUEST_OF(2, 4, 0, 3) REQUEST_OF(2, 5, 1, 2)
#define AT_FIRST GRANTED(0) GRANTED(2) AT_LEAD(4) QUEUED(3) QUEUED(1)
#define MAY_GO 1
#elif SCRIPT == 10 /* somebody between two requests of one session */
#define NODES 2
#define SESSIONS 3
#define TERMS 2
#define Q 6
#define MOST 4
#define EDGES 10
#define TOGETHER
#define PLAY HOME(0, 0) HOME(1, 1) HOME(2, 1) \
  REQUEST_OF(0, 0, 1, 1) REQUEST_OF(0, 1, 0, 2) REQUEST_OF(0, 2, 0, 2) \
  REQUEST_OF(1, 3, 0, 2) REQUEST_OF(1, 4, 1, 1) REQUEST_OF(2, 5, 0, 2)
#define AT_FIRST GRANTED(0) GRANTED(5) QUEUED(1)
#define MAY_END 2
#define MAY_GO 32
#elif SCRIPT == 11 /* a link that is there later */
#define NODES 3
#define SESSIONS 3
#define TERMS 2
#define Q 6
#define MOST 4
#define EDGES 8
#define CUT
#define CUT_FROM 1
#define CUT_TO 2
#define TOGETHER
#define PLAY HOME(0, 0) HOME(1, 0) HOME(2, 0) \
  REQUEST_OF(0, 0, 0, 2) REQUEST_OF(0, 1, 0, 4) \
  REQUEST_OF(1, 2, 0, 4) REQUEST_OF(1, 3, 0, 2) REQUEST_OF(1, 4, 1, 4) \
  REQUEST_OF(2, 5, 1, 4)
#define AT_FIRST GRANTED(0) GRANTED(2) GRANTED(5) QUEUED(4)
#define MAY_GO 0
#elif SCRIPT == 12 /* a hold that keeps a row exclusive */
#define NODES 2
#define SESSIONS 2
#define TERMS 2
#define Q 5
#define READS
#define TOGETHER
#define PLAY HOME(0, 0) HOME(1, 1) \
  REQUEST_OF(0, 0, 0, 2) REQUEST_OF(0, 1, 0, 2) REQUEST_OF(0, 2, 1, 2) \
  REQUEST_OF(1, 3, 1, 2) REQUEST_OF(1, 4, 0, 2) SHARED(1) SHARED(4)
#define AT_FIRST GRANTED(0) GRANTED(1) GRANTED(3)
#elif SCRIPT == 13 /* the same, where the session lives that has it */
#define NODES 2
#define SESSIONS 2
#define TERMS 2
#define Q 5
#define READS
#define TOGETHER
#define PLAY HOME(0, 1) HOME(1, 0) \
  REQUEST_OF(0, 0, 0, 2) REQUEST_OF(0, 1, 0, 3) REQUEST_OF(0, 2, 1, 1) \
  REQUEST_OF(1, 3, 1, 1) REQUEST_OF(1, 4, 0, 2) SHARED(1) SHARED(4)
#define AT_FIRST GRANTED(0) GRANTED(1) GRANTED(3)
#endif

#ifndef Q
#define Q (2 * SESSIONS)
#endif
/* As bits: which requests may end, and which holds may be released at any time,
 * not only when nothing else is going on. */
#ifndef MAY_END
#define MAY_END 255
#endif
#ifndef MAY_GO
#ifdef CALM
#define MAY_GO 0xf0
#else
#define MAY_GO 0xff
#endif
#endif
#define LINKS (NODES * (NODES - 1))
#define link(o, p) ((o) * (NODES - 1) + ((p) > (o) ? (p) - 1 : (p)))

c_decl {
  typedef unsigned char u8;
  typedef unsigned short u16;
  typedef unsigned long long u64;

  extern void (*uerror)(char*);

  enum { nothing, pending, has_it, over };
  enum { not_whole, whole_request }; /* of standing: none, partial, whole */
  enum { standing_none, standing_partial, standing_whole };
  enum { direct_hold, part_hold, queued };
  enum { no_part, waiting, served, complete };

  enum message_kind {
    no_message, request, granted, abandon, release, waits_elsewhere, question,
    answer, verdict
  };

  /* home -> worker */
  typedef struct {
    u16 what : 4, q : 3, attempt : 2, elsewhere : 1, holds : 1, unused : 5;
  } order;

#define ORDERS 5
  typedef struct {
    u8 size;
    order at[ORDERS];
  } orders;

  /* wait_name */
  typedef struct {
    u8 q : 3, attempt : 2, node : 2, unused : 1;
  } wait;

  /* blocker */
  typedef struct {
    u16 there : 1, q : 3, attempt : 2, how : 2, said : 2, holds : 1;
    u16 kept : 1, unused : 4;
  } blocker;

#ifndef MOST
#define MOST 3
#endif
  /* walk_claim; as a standing the answer to it. */
  typedef struct {
    wait w;
    u8 there : 1, q : 3, attempt : 2, how : 2;
    u8 node : 2, term : 2, waits : 1, standing : 2, holds : 1;
    u8 shared : 1, kept : 1, unused : 6;
  } claim;

  /* worker, or walk -> scope */
  typedef struct {
    u8 what, q, attempt;
    u8 origin, id, step; /* whose walk */
    wait first;
    u8 sessions;      /* asked, or answered, as bits */
    u8 waits_of[Q];   /* attempt and nodes, of the sessions answered */
    u8 waits[Q];      /* attempt + 1, of the waits asked or answered */
    blocker by[Q][MOST];
    claim claims[MOST];
    u8 why;
  } letter;

#ifndef LETTERS
#define LETTERS 6
#endif
  typedef struct {
    u8 size;
    letter at[LETTERS];
  } letters;

  /* A request at its home. */
  typedef struct {
    u8 word, holds; /* its age: whether the session held something */
    u8 asked_for;   /* known to the coordinator, and pending there or granted */
    u8 attempt, elsewhere, asked, held, told, is_whole;
    u8 post_open : 1, post_cancel : 1, post_release : 1, post_elsewhere : 1;
  } home_side;

  typedef struct {
    u8 state : 2, attempt : 2, elsewhere : 1, unused : 3;
  } far_side;

  typedef struct {
    u8 holders; /* as bits */
    u8 kept : 1, unused : 7;
    u8 size, queue[Q];
  } row;

  typedef struct {
    blocker by;
    wait w;
    u8 there : 1, over : 1, unused : 6;
    u8 seen : 4, asked : 4;
  } edge;

#ifndef EDGES
#define EDGES 6
#endif
#define OWED 3
#define AGAIN 4
  /* walks::walk */
  typedef struct {
    u8 there, id, step, clock;
    wait first;
    u8 all_waits;
    u8 sessions, sessions_to_ask, origin_asked;
    u64 waits, waits_to_ask;
    unsigned ended;
    edge edges[EDGES];
    struct {
      u8 owed, step, asked;
    } answers[NODES][OWED];
    u8 candidate[MOST]; /* edges + 1 */
    u8 standing[MOST], holds[MOST];
    struct {
      u8 owed, step, places;
    } confirmations[NODES];
    u8 agains, again_all; /* other beginnings; `all_waits` as bits */
    wait again[AGAIN];
#ifdef CUT
    u8 missed; /* peers, as bits */
#endif
#ifdef READS
    unsigned asked_again[Q]; /* what was over then, as bits, by wait */
#endif
  } walk;

  typedef struct {
    home_side home[Q];
    far_side far[Q][NODES];
    row rows[NODES][TERMS];
    orders to_worker[LINKS], unsent[LINKS];
    letters to_scope[LINKS];
    walk walks[NODES][SESSIONS];
    u8 next_id[NODES];
    /* effect::walk on its way, or patient. */
    u8 begin[Q][NODES];
    /* The same without a wait to begin with. */
    u8 begin_all[SESSIONS][NODES];
#ifdef CUT
    u8 up[NODES]; /* peers to which there is a link, as bits */
    /* walks::missed_: which requests' walks, as bits. */
    u8 missed[NODES][NODES], missed_all[NODES][NODES];
#endif
    u8 ends;
    /* Ghosts, by request and attempt: that it was the right victim of a cycle
     * that there was. */
    unsigned may_die, may_give_back;
    u8 verdicts;
    struct {
      u8 ask[Q], release[Q], end[Q], grant[NODES][TERMS], hear[Q][NODES];
      u8 worker[LINKS], scope[LINKS], flush[LINKS];
      u8 begin[Q][NODES], begin_all[SESSIONS][NODES];
#ifdef CUT
      u8 up[NODES];
#endif
      u8 open[Q], cancel[Q], give_up[Q], elsewhere[Q], finish;
    } can;
  } cluster;
}

c_state "cluster s" "Global"

c_code {
#define S now.s

  static int n; /* the node at work */

  /* The script. */
  static u8 home_of_session[SESSIONS];
  static u8 session_of_request[Q], term_of[Q], nodes_of[Q], is_shared[Q];

  static void fail(const char* what) {
    uerror((char*) what);
  }

#define check(condition, what) \
  do { if (!(condition)) fail(what); } while (0)

#define session_of(q) (session_of_request[q])
#define home_of(q) (home_of_session[session_of(q)])
#define name_of(q, attempt) ((q) * 4 + (attempt))
#define each_of(s, q) (q = 0; q < Q; ++q) if (session_of(q) == (s))

  static int direct(int q) {
    return nodes_of[q] == 1 << home_of(q);
  }

  static int is_none(wait w) {
    return w.node >= NODES;
  }

  static u64 bit_of(wait w) {
    check(w.attempt < 4, "too many attempts for this model");
    return 1ull << ((w.q * 3 + w.node) + 18 * (w.attempt & 3) % 54);
  }

  /* session_ledger::holds_something */
  static int holds_something(int s) {
    int q;
    for each_of(s, q)
      if (S.home[q].word == has_it)
        return 1;
    return 0;
  }

  /* scope_actor::standing_of, the age: coordinator::age_of, too. */
  static int age_of(int s) {
    int q;
    if (holds_something(s))
      return 1;
    for each_of(s, q)
      if (!direct(q) && S.home[q].asked_for && !S.home[q].is_whole
          && S.home[q].holds)
        return 1;
    return 0;
  }

  /* Who holds nothing is youngest; ties by session. */
  static int is_younger(int s, int holds, int t, int t_holds) {
    return holds != t_holds ? !holds : s > t;
  }

  static int on_board(int q) {
    return S.home[q].word == pending;
  }

  /* -- sending -------------------------------------------------------------- */

  static order take_order(orders* c, int i) {
    order m = c->at[i];
    for (--c->size; i < c->size; ++i)
      c->at[i] = c->at[i + 1];
    memset(&c->at[c->size], 0, sizeof(order));
    return m;
  }

  static void put_order(orders* c, order m) {
    check(c->size < ORDERS, "a channel is too short");
    if (c->size < ORDERS)
      c->at[c->size++] = m;
  }

  static int reachable(int o) {
#ifdef CUT
    return (S.up[n] >> o) & 1;
#else
    return 1;
#endif
  }

  static void put_letter(int to, letter m) {
    letters* c = &S.to_scope[link(n, to)];
    if (!reachable(to))
      return;
    check(c->size < LETTERS, "a channel is too short");
    if (c->size < LETTERS)
      c->at[c->size++] = m;
  }

  static letter take_letter(letters* c) {
    letter m = c->at[0];
    int i;
    for (--c->size, i = 0; i < c->size; ++i)
      c->at[i] = c->at[i + 1];
    memset(&c->at[c->size], 0, sizeof(letter));
    return m;
  }

  static void worker_receive(order m);
  static void home_granted(int from, int q, int attempt);

  static void to_part(int to, int what, int q, int attempt, int elsewhere,
                      int holds) {
    order m;
    orders* u = &S.unsent[link(n, to)];
    int i;
    memset(&m, 0, sizeof(m));
    m.what = what; m.q = q; m.attempt = attempt; m.elsewhere = elsewhere;
    m.holds = holds;
    if (to == n) {
      worker_receive(m);
      return;
    }
    if (what == request) {
      put_order(u, m);
      return;
    }
    for (i = 0; i < u->size; ++i)
      if (u->at[i].q == q && u->at[i].attempt == attempt) {
        if (what == abandon) {
          take_order(u, i);
          return;
        }
#ifndef ELSEWHERE_OVERTAKES
        if (what == waits_elsewhere) {
          u->at[i].elsewhere = 1;
          return;
        }
#endif
      }
    put_order(&S.to_worker[link(n, to)], m);
  }

  static void to_its_home(int q, int attempt) {
    letter m;
    if (home_of(q) == n) {
      home_granted(n, q, attempt);
      return;
    }
    memset(&m, 0, sizeof(m));
    m.what = granted; m.q = q; m.attempt = attempt;
    put_letter(home_of(q), m);
  }

  /* -- rows ----------------------------------------------------------------- */

#define ROW(q, o) S.rows[o][term_of[q]]

  static void leave_queue(int q, int o) {
    row* r = &ROW(q, o);
    int i, j = 0;
    for (i = 0; i < r->size; ++i)
      if (r->queue[i] != q)
        r->queue[j++] = r->queue[i];
    for (i = j; i < r->size; ++i)
      r->queue[i] = 0;
    r->size = j;
  }

  static int hangs(int q, int o) {
    row* r = &ROW(q, o);
    int i;
    for (i = 0; i < r->size; ++i)
      if (r->queue[i] == q)
        return 1;
    return 0;
  }

  static int is_exclusive(const row* r) {
    int q;
    for (q = 0; q < Q; ++q)
      if ((r->holders & (1 << q)) && !is_shared[q])
        return 1;
    return r->kept;
  }

  static int is_held_by(const row* r, int s) {
    int q;
    for each_of(s, q)
      if (r->holders & (1 << q))
        return 1;
    return 0;
  }

  /* lock_table::access_of: not `conflict`. */
  static int fits(const row* r, int q) {
    int u, others = 0;
    if (r->holders == 0 || (!is_exclusive(r) && is_shared[q]))
      return 1;
    for (u = 0; u < Q; ++u)
      others |= (r->holders & (1 << u)) && session_of(u) != session_of(q);
    check(others || is_exclusive(r), "an upgrade, in this model");
    return !others;
  }

  /* lock_table::enter_held: at once. */
  static int goes_in(const row* r, int q) {
    return (r->size == 0 && fits(r, q))
           || ((is_exclusive(r) || is_shared[q])
               && is_held_by(r, session_of(q)));
  }

  /* Its grant is the other's, too. */
  static int lets_in(int q, int other) {
    return q != other && session_of(q) == session_of(other)
           && (!is_shared[q] || is_shared[other]);
  }

  /* effect::walk, post::walk: the scope's actor gets to it later. */
  static void begin_walk(int q, int o, int all_waits) {
    S.begin[q][o] |= all_waits ? 3 : 1;
  }

  /* True: granted at once. */
  static int lock_or_hang(int q, int o) {
    row* r = &ROW(q, o);
    if (goes_in(r, q)) {
      r->holders |= 1 << q;
      return 1;
    }
    r->queue[r->size++] = q;
    return 0;
  }

  static void free_row(int q, int o, int to_prior) {
    row* r = &ROW(q, o);
    if (!(r->holders & (1 << q)))
      return;
    r->holders &= ~(1 << q);
    if (r->holders == 0)
      r->kept = 0;
    else if (!is_shared[q] && !to_prior)
      r->kept = 1;
  }

  /* lock_table::abandon, lock_port::left_waiting */
  static void abandon_wait(int q, int o) {
    row* r = &ROW(q, o);
    int i, behind = 0;
    for (i = 0; i < r->size; ++i) {
#ifndef LEFT_UNTOLD
      if (behind && lets_in(q, r->queue[i]))
        S.begin_all[session_of(q)][o] = 1;
#endif
      behind |= r->queue[i] == q;
    }
    leave_queue(q, o);
  }

  /* -- worker --------------------------------------------------------------- */

  static void drop(int q, int to_prior) {
    abandon_wait(q, n);
    free_row(q, n, to_prior);
    memset(&S.far[q][n], 0, sizeof(S.far[q][n]));
  }

  static void worker_receive(order m) {
    far_side* e = &S.far[m.q][n];
    switch (m.what) {
      case request:
        if (e->state != no_part)
          drop(m.q, 1);
        e->attempt = m.attempt;
        e->elsewhere = m.elsewhere;
        if (lock_or_hang(m.q, n)) {
          e->state = complete;
          to_its_home(m.q, m.attempt);
          return;
        }
        e->state = waiting;
#ifndef HOME_BEGINS
        if (m.elsewhere || m.holds)
          begin_walk(m.q, n, m.elsewhere);
#endif
        break;
      case abandon:
        if (e->state != no_part && e->attempt <= m.attempt)
          drop(m.q, 1);
        break;
      case release:
        if (e->state == no_part)
          break;
        drop(m.q, e->state != complete);
#ifndef KEPT_UNTOLD
        /* look_at_what_is_kept */
        if (ROW(m.q, n).kept && ROW(m.q, n).size
            && is_held_by(&ROW(m.q, n), session_of(m.q)))
          S.begin_all[session_of(m.q)][n] = 1;
#endif
        break;
      case waits_elsewhere:
        if (e->state == no_part || e->attempt != m.attempt || e->elsewhere)
          return;
        e->elsewhere = 1;
#ifdef HELD_UNTOLD
        if (e->state == complete)
          return;
#endif
        begin_walk(m.q, n, 1);
        break;
    }
  }

  /* -- coordinator, multi_node_request -------------------------------------- */

  static int lead_of(int q) {
    int o = 0;
    while (!(nodes_of[q] & (1 << o)))
      ++o;
    return o;
  }

  static void ask_part(int q, int o, int elsewhere) {
    home_side* h = &S.home[q];
    h->asked |= 1 << o;
    if (elsewhere || h->elsewhere)
      h->told |= 1 << o;
#ifdef HOME_BEGINS
    begin_walk(q, n, 1);
#endif
    to_part(o, request, q, h->attempt, elsewhere || h->elsewhere, h->holds);
  }

  static void tell_elsewhere(int q) {
    home_side* h = &S.home[q];
    int o;
    for (o = 0; o < NODES; ++o)
      if ((h->asked & ~h->told) & (1 << o)) {
        h->told |= 1 << o;
        to_part(o, waits_elsewhere, q, h->attempt, 0, 0);
      }
  }

  static void coordinator_waits_elsewhere(int q) {
    home_side* h = &S.home[q];
#ifndef FORGETS_ELSEWHERE
    if (!h->asked_for || h->is_whole || h->elsewhere)
      return;
    h->elsewhere = 1;
    tell_elsewhere(q);
#endif
  }

  static void forget(int q) {
    home_side* h = &S.home[q];
    h->asked_for = h->asked = h->held = h->told = h->is_whole = 0;
    h->elsewhere = h->attempt = h->holds = 0;
    h->post_elsewhere = 0;
  }

  static void abandon_all(int q) {
    home_side* h = &S.home[q];
    int o;
    for (o = 0; o < NODES; ++o)
      if ((h->asked | h->held) & (1 << o))
        to_part(o, abandon, q, h->attempt, 0, 0);
  }

  static void home_granted(int from, int q, int attempt) {
    home_side* h = &S.home[q];
    int o, rest;
    if (!h->asked_for || attempt != h->attempt || !(h->asked & (1 << from))) {
      if (!h->asked_for || attempt != h->attempt)
        to_part(from, abandon, q, attempt, 0, 0);
      return;
    }
    h->asked &= ~(1 << from);
    h->held |= 1 << from;
    h->holds = 1;
    if (from == lead_of(q)) {
      rest = nodes_of[q] & ~h->held & ~h->asked;
      for (o = 0; o < NODES; ++o)
        if (rest & (1 << o))
          ask_part(q, o, (rest & (rest - 1)) != 0);
    }
    if (h->held != nodes_of[q])
      return;
    h->is_whole = 1;
    if (h->word == pending) {
      h->word = has_it;
      return;
    }
    for (o = 0; o < NODES; ++o)
      if (nodes_of[q] & (1 << o))
        to_part(o, release, q, 0, 0, 0);
    forget(q);
  }

  static void give_back_and_ask_again(int q) {
    home_side* h = &S.home[q];
    abandon_all(q);
    h->asked = h->held = h->told = 0;
    ++h->attempt;
    check(h->attempt < 3, "too many attempts for this model");
    ask_part(q, lead_of(q), 0);
  }

  /* -- walk_port, as scope_actor does it ------------------------------------ */

  /* Attempt and nodes, by request. */
  static void waits_of(int s, u8* out) {
    int q;
    for each_of(s, q) {
      home_side* h = &S.home[q];
      out[q] = 0;
      if (h->word != pending)
        continue;
      if (direct(q))
        out[q] = 1 << home_of(q);
      else if (h->asked_for && !h->is_whole && h->asked) {
        out[q] = (h->attempt << 4) | h->asked;
      }
    }
  }

  static int waits_here(wait w) {
    if (direct(w.q))
      return S.home[w.q].word == pending && hangs(w.q, w.node);
    return S.far[w.q][w.node].state == waiting
           && S.far[w.q][w.node].attempt == w.attempt;
  }

  static int waits_elsewhere_too(int q, int o) {
    return S.far[q][o].elsewhere;
  }

  /* lock_table::gate_of: its place in the queue. */
  static int gate_of(const row* r, int q) {
    int i;
    for (i = 0; r->queue[i] != q; ++i)
#ifndef BETWEEN_COUNTS
      if (lets_in(r->queue[i], q))
        return i;
#else
      ;
#endif
    return i;
  }

  /* lock_table::blockers. A shared request has nobody ahead in this model. */
  static int blockers_of(wait w, blocker* out) {
    row* r = &ROW(w.q, w.node);
    int i, gate, mine = 0, k = 0;
    memset(out, 0, MOST * sizeof(*out));
    if (!waits_here(w))
      return 0;
    gate = gate_of(r, w.q);
    check(!is_shared[w.q] || r->queue[0] == w.q, "a reader has nobody ahead");
    for (i = 0; i < gate; ++i) {
      int u = r->queue[i];
      mine |= session_of(u) == session_of(w.q);
      if (session_of(u) == session_of(w.q)
          || (!waits_elsewhere_too(u, w.node) && !mine))
        continue;
      out[k].there = 1;
      out[k].q = u;
      out[k].attempt = direct(u) ? 0 : S.far[u][w.node].attempt;
      out[k].how = queued;
      check(++k < MOST, "too many blockers for this model");
    }
    for (i = 0; i < Q; ++i) {
      if (!(r->holders & (1 << i)) || session_of(i) == session_of(w.q)
          || (is_shared[w.q] && is_shared[i] && !r->kept))
        continue;
      check(k < MOST, "too many blockers for this model");
      out[k].there = 1;
      out[k].q = i;
      out[k].attempt = direct(i) ? 0 : S.far[i][w.node].attempt;
      out[k].how = direct(i) ? direct_hold : part_hold;
      out[k].kept = is_shared[w.q] && is_shared[i];
      ++k;
    }
    return 1;
  }

  static int still_pending(int q, int attempt, int o) {
    home_side* h = &S.home[q];
    if (h->word != pending)
      return 0;
    if (direct(q))
      return 1;
    return h->asked_for && !h->is_whole && h->attempt == attempt
           && (o == NODES || (h->asked & (1 << o)));
  }

  static int how_in_the_way(const claim* x) {
    home_side* h = &S.home[x->q];
    int here = direct(x->q) && x->node == n && h->word == has_it
               && term_of[x->q] == x->term;
    if (direct(x->q) || !h->asked_for)
      return here || (x->how == queued && direct(x->q)
                      && still_pending(x->q, 0, x->node))
               ? standing_whole : standing_none;
    if (h->attempt != x->attempt || (h->word != pending && h->word != has_it))
      return standing_none;
    if (is_shared[x->q] && x->shared && !x->kept)
      return standing_none;
#ifdef TELLS_PARTIAL
    return standing_whole;
#endif
    return h->is_whole ? standing_whole : standing_partial;
  }

  static void standing_of(claim* x) {
    x->waits = x->standing = x->holds = 0;
#ifdef SILENT_WHEN_OVER
    if (is_none(x->w) || !on_board(x->w.q))
      return;
#endif
    x->waits = !is_none(x->w) && on_board(x->w.q)
               && still_pending(x->w.q, x->w.attempt, x->w.node);
    x->standing = how_in_the_way(x);
    x->holds = x->waits && age_of(session_of(x->w.q));
  }

  static void end_word(int q);

  static int sentence_here(int q, int attempt, int why) {
    if (!still_pending(q, attempt, NODES))
      return 0;
    if (why == 0) {
      check(S.may_give_back & (1u << name_of(q, attempt)),
            "what is given back was in a cycle of partial grants, and youngest");
      give_back_and_ask_again(q);
      return 1;
    }
    check(S.may_die & (1u << name_of(q, attempt)),
          "a verdict hits the youngest of a true cycle");
    ++S.verdicts;
#if SCRIPT == 1 || SCRIPT == 2 || SCRIPT == 4 || SCRIPT == 6
    check(S.verdicts < 2, "a lone cycle gets one verdict");
#endif
    end_word(q);
    return 1;
  }

  /* -- wait_for_graph ------------------------------------------------------- */

  static int edges_equal(const edge* x, const wait* w, const blocker* by) {
    return x->there && !memcmp(&x->w, w, sizeof(*w)) && x->by.q == by->q
           && x->by.attempt == by->attempt;
  }

  /* wait_for_graph::ask_again */
  static void ask_again(walk* g, wait w, int over) {
#if defined(READS) && !defined(ASKS_ONCE)
    if (!is_shared[w.q] || (g->asked_again[w.q] & (1u << over)))
      return;
    g->asked_again[w.q] |= 1u << over;
    g->waits_to_ask |= bit_of(w);
#endif
  }

  static void reach_session(walk* g, int origin, int s) {
    if (s == origin) {
      if (!g->origin_asked)
        g->sessions_to_ask |= 1 << s;
      g->origin_asked = 1;
    } else if (!(g->sessions & (1 << s))) {
      g->sessions |= 1 << s;
      g->sessions_to_ask |= 1 << s;
    }
  }

  static void reach_wait(walk* g, wait w) {
    if (g->waits & bit_of(w))
      return;
    g->waits |= bit_of(w);
    g->waits_to_ask |= bit_of(w);
  }

  static wait make_wait(int q, int attempt, int o) {
    wait w;
    memset(&w, 0, sizeof(w));
    w.q = q; w.attempt = attempt; w.node = o;
    return w;
  }

  static void add_session(walk* g, int origin, int s, const u8* found) {
    int q, o;
    g->sessions |= 1 << s;
    g->sessions_to_ask &= ~(1 << s);
    if (s == origin)
      g->origin_asked = 1;
    for each_of(s, q)
      for (o = 0; o < NODES; ++o)
        if (found[q] & (1 << o))
          reach_wait(g, make_wait(q, found[q] >> 4, o));
  }

  static void add_wait(walk* g, int origin, wait w, const blocker* by, int seen,
                       int asked) {
    int i, k;
    g->sessions |= 1 << session_of(w.q);
    g->waits |= bit_of(w);
    g->waits_to_ask &= ~bit_of(w);
    for (k = 0; k < MOST; ++k) {
      int known = 0;
      if (!by[k].there || session_of(by[k].q) == session_of(w.q))
        continue;
      if (g->ended & (1u << name_of(by[k].q, by[k].attempt))) {
        ask_again(g, w, name_of(by[k].q, by[k].attempt));
        continue;
      }
      for (i = 0; i < EDGES; ++i)
        known |= edges_equal(&g->edges[i], &w, &by[k]);
      if (known)
        continue;
      for (i = 0; i < EDGES && g->edges[i].there; ++i)
        ;
      check(i < EDGES, "too many edges for this model");
      if (i == EDGES)
        return;
      check(seen < 16, "too much is learnt for this model");
      g->edges[i].there = 1;
      g->edges[i].w = w;
      g->edges[i].by = by[k];
      g->edges[i].seen = seen;
      g->edges[i].asked = asked;
      if (session_of(by[k].q) != origin)
        reach_session(g, origin, session_of(by[k].q));
    }
  }

  static int closes(const walk* g, int origin) {
    int i;
    for (i = 0; i < EDGES; ++i)
      if (g->edges[i].there && !g->edges[i].over
          && session_of(g->edges[i].by.q) == origin)
        return 1;
    return 0;
  }

  /* A shortest cycle; edges + 1. */
  static int find_cycle(walk* g, int origin) {
    int came_by[SESSIONS], next[SESSIONS], size = 1, i, k, last, length = 0;
    u8 back[SESSIONS];
    for (i = 0; i < SESSIONS; ++i)
      came_by[i] = -1;
    next[0] = origin;
    for (k = 0; k < size; ++k)
      for (i = 0; i < EDGES; ++i) {
        edge* x = &g->edges[i];
        int to = session_of(x->by.q);
        if (!x->there || x->over || session_of(x->w.q) != next[k])
          continue;
        if (to != origin) {
          if (came_by[to] < 0) {
            came_by[to] = i;
            next[size++] = to;
          }
          continue;
        }
        last = i;
        back[length++] = last + 1;
        while (session_of(g->edges[last].w.q) != origin) {
          last = came_by[session_of(g->edges[last].w.q)];
          back[length++] = last + 1;
        }
        memset(g->candidate, 0, sizeof(g->candidate));
        for (i = 0; i < length; ++i)
          g->candidate[i] = back[length - 1 - i];
        return length;
      }
    return 0;
  }

  static void remove_edge(walk* g, edge* x) {
    if (x->there && !x->over)
      ask_again(g, x->w, name_of(x->by.q, x->by.attempt));
    x->over = 1;
  }

  static void remove_attempt(walk* g, int q, int attempt) {
    int i;
    g->ended |= 1u << name_of(q, attempt);
    for (i = 0; i < EDGES; ++i)
      if (g->edges[i].there) {
        if (g->edges[i].by.q == q && g->edges[i].by.attempt == attempt)
          remove_edge(g, &g->edges[i]);
        else if (g->edges[i].w.q == q && g->edges[i].w.attempt == attempt)
          g->edges[i].over = 1;
      }
  }

#ifdef CUT
  static void remove_node(walk* g, int o) {
    int i, s;
    for (i = 0; i < EDGES; ++i)
      if (g->edges[i].there
          && (g->edges[i].w.node == o || home_of(g->edges[i].w.q) == o
              || home_of(g->edges[i].by.q) == o))
        g->edges[i].over = 1;
    for (s = 0; s < SESSIONS; ++s)
      if (home_of_session[s] == o)
        g->sessions_to_ask &= ~(1 << s);
    for (i = 0; i < Q; ++i)
      g->waits_to_ask &= ~bit_of(make_wait(i, 0, o));
  }
#endif

  static void remove_wait(walk* g, wait w) {
    int i;
    for (i = 0; i < EDGES; ++i)
      if (g->edges[i].there && g->edges[i].w.node == w.node
          && g->edges[i].by.q == w.q && g->edges[i].by.attempt == w.attempt
          && !g->edges[i].over)
        ask_again(g, g->edges[i].w, name_of(w.q, w.attempt));
    for (i = 0; i < EDGES; ++i)
      if (g->edges[i].there && !memcmp(&g->edges[i].w, &w, sizeof(w)))
        g->edges[i].over = 1;
  }

  /* -- walks ---------------------------------------------------------------- */

  static void begin(int origin, wait first, int all_waits);

  static int still_waits(wait first, int all_waits, int origin) {
    u8 found[Q];
    int q, some = 0;
    if (all_waits) {
      if (home_of_session[origin] != n)
        return 1;
      waits_of(origin, found);
      for each_of(origin, q)
        some |= found[q];
      return some != 0;
    }
    return first.node != n || waits_here(first);
  }

  static int next_wait(walk* g, int here, wait* out) {
    int q, a, o;
    for (q = 0; q < Q; ++q)
      for (a = 0; a < 3; ++a)
        for (o = 0; o < NODES; ++o) {
          *out = make_wait(q, a, o);
          if ((g->waits_to_ask & bit_of(*out)) && (o == n) == here)
            return 1;
        }
    return 0;
  }

  static int explore_here(walk* w, int origin) {
    u8 found[Q];
    blocker by[MOST];
    wait x;
    int s;
    for (;;) {
      int closed = closes(w, origin), more = 0;
      for (s = 0; s < SESSIONS && !more; ++s)
        if ((w->sessions_to_ask & (1 << s)) && home_of_session[s] == n) {
          w->sessions_to_ask &= ~(1 << s);
          memset(found, 0, sizeof(found));
          waits_of(s, found);
          add_session(w, origin, s, found);
          more = 1;
        }
      if (more)
        continue;
      if (!next_wait(w, 1, &x))
        return 0;
      w->waits_to_ask &= ~bit_of(x);
      ++w->clock;
      if (blockers_of(x, by))
        add_wait(w, origin, x, by, w->clock, w->clock);
      else
        remove_wait(w, x);
      if (!closed && closes(w, origin))
        return 1;
    }
  }

  static letter new_letter(const walk* w, int origin, int what) {
    letter m;
    memset(&m, 0, sizeof(m));
    m.what = what;
    m.origin = origin;
    m.id = w->id;
    m.step = w->step;
    m.first = w->first;
    return m;
  }

  static void ask(walk* w, int origin) {
    letter m[NODES];
    u8 any[NODES];
    wait x;
    int s, o, k, some = 0;
    memset(any, 0, sizeof(any));
    memset(m, 0, sizeof(m));
    for (s = 0; s < SESSIONS; ++s)
      if (w->sessions_to_ask & (1 << s)) {
        m[home_of_session[s]].sessions |= 1 << s;
        any[home_of_session[s]] = some = 1;
      }
    w->sessions_to_ask = 0;
    while (next_wait(w, 0, &x)) {
      w->waits_to_ask &= ~bit_of(x);
      m[x.node].waits[x.q] = x.attempt + 1;
      any[x.node] = some = 1;
    }
    if (!some)
      return;
    ++w->step;
    for (o = 0; o < NODES; ++o) {
#ifdef CUT
      if (any[o] && !reachable(o)) {
        w->missed |= 1 << o;
        remove_node(w, o);
        any[o] = 0;
      }
#endif
      if (any[o]) {
        letter y = new_letter(w, origin, question);
        y.sessions = m[o].sessions;
        memcpy(y.waits, m[o].waits, sizeof(y.waits));
        for (k = 0; k < OWED && w->answers[o][k].owed; ++k)
          ;
        check(k < OWED, "a node owes too many answers for this model");
        k %= OWED;
        w->answers[o][k].owed = 1;
        w->answers[o][k].step = w->step;
        w->answers[o][k].asked = w->clock;
        put_letter(o, y);
      }
    }
    ++w->clock;
  }

  static int length_of(const walk* w) {
    int i;
    for (i = 0; i < MOST && w->candidate[i]; ++i)
      ;
    return i;
  }

  static claim claim_of(const walk* w, int place) {
    int length = length_of(w);
    const edge* mine = &w->edges[w->candidate[place] - 1];
    const edge* before
      = &w->edges[w->candidate[(place + length - 1) % length] - 1];
    claim x;
    memset(&x, 0, sizeof(x));
    x.there = 1;
    x.w = mine->w;
    x.q = before->by.q;
    x.attempt = before->by.attempt;
    x.how = before->by.how;
    x.node = before->w.node;
    x.term = term_of[before->w.q];
    x.shared = is_shared[before->w.q];
    x.kept = before->by.kept;
    return x;
  }

  static void drop_candidate(walk* w) {
    memset(w->candidate, 0, sizeof(w->candidate));
    memset(w->standing, 0, sizeof(w->standing));
    memset(w->holds, 0, sizeof(w->holds));
    memset(w->confirmations, 0, sizeof(w->confirmations));
  }

  static int accept(walk* w, int place, int waits, int standing, int holds) {
    int length = length_of(w);
    edge* mine = &w->edges[w->candidate[place] - 1];
    edge* before = &w->edges[w->candidate[(place + length - 1) % length] - 1];
    w->standing[place] = standing;
    w->holds[place] = holds;
    if (!waits)
      remove_wait(w, mine->w);
    if (standing == standing_none)
      remove_edge(w, before);
    return waits && standing != standing_none;
  }

  static int confirm(walk* w, int origin) {
    int length = length_of(w), i, o, good = 1, some = 0;
    const edge* last = &w->edges[w->candidate[length - 1] - 1];
    u8 places[NODES];
    memset(places, 0, sizeof(places));
    for (i = 0; i < length && good; ++i) {
      const edge* x = &w->edges[w->candidate[i] - 1];
      int home = home_of(x->w.q), k, before = 1;
      for (k = 0; k < length; ++k) {
        const edge* y = &w->edges[w->candidate[k] - 1];
        before &= y->seen <= last->asked || y->seen == last->seen;
      }
      if (home == n) {
        claim c = claim_of(w, i);
        standing_of(&c);
        good = accept(w, i, c.waits, c.standing, c.holds);
      } else if (i == 0 && last->by.said != standing_none
                 && !memcmp(&x->w, &w->first, sizeof(wait)) && before) {
        good = accept(w, i, 1, last->by.said, last->by.holds);
      } else {
#ifdef NO_CONFIRMATION
        good = accept(w, i, 1, standing_whole, 1);
#else
#ifdef CUT
        if (!reachable(home)) {
          w->missed |= 1 << home;
          good = accept(w, i, 0, standing_none, 0);
          continue;
        }
#endif
        places[home] |= 1 << i;
        some = 1;
#endif
      }
    }
    if (!good) {
      drop_candidate(w);
      return 0;
    }
    if (!some)
      return 1;
    ++w->step;
    for (o = 0; o < NODES; ++o)
      if (places[o]) {
        letter m = new_letter(w, origin, question);
        int k = 0;
        for (i = 0; i < length; ++i)
          if (places[o] & (1 << i))
            m.claims[k++] = claim_of(w, i);
        w->confirmations[o].owed = 1;
        w->confirmations[o].step = w->step;
        w->confirmations[o].places = places[o];
        put_letter(o, m);
      }
    return 1;
  }

  static int confirming(const walk* w) {
    int o;
    for (o = 0; o < NODES; ++o)
      if (w->confirmations[o].owed)
        return 1;
    return 0;
  }

#ifdef CUT
  static void remember(int peer, const walk* w) {
    check(!is_none(w->first) && w->first.attempt == 0,
          "what is remembered has a name, in this model");
    S.missed[n][peer] |= 1 << w->first.q;
    if (w->all_waits)
      S.missed_all[n][peer] |= 1 << w->first.q;
  }
#endif

  static void sentence(int q, int attempt, int why) {
    u8 found[Q];
    int s = session_of(q), x, o;
    if (sentence_here(q, attempt, why))
      return;
#ifdef LATE_UNTOLD
    if (why != 0)
      return;
#endif
    waits_of(s, found);
    for each_of(s, x)
      for (o = 0; o < NODES; ++o)
        if (found[x] & (1 << o)) {
          begin(s, make_wait(x, found[x] >> 4, o), 1);
          return;
        }
  }

  static void pass_verdict(walk* w, int origin) {
    int length = length_of(w), i, victim = 0, whole = 0, q, attempt;
    letter m = new_letter(w, origin, verdict);
    const edge* x;
    for (i = 0; i < length; ++i) {
      const edge* y = &w->edges[w->candidate[i] - 1];
      const edge* v = &w->edges[w->candidate[victim] - 1];
      if (is_younger(session_of(y->w.q), w->holds[i], session_of(v->w.q),
                     w->holds[victim]))
        victim = i;
      whole |= w->standing[i] == standing_whole;
    }
#ifdef ORIGIN_IS_VICTIM
    victim = 0;
#endif
    if (whole) {
      x = &w->edges[w->candidate[victim] - 1];
      q = x->w.q;
      attempt = x->w.attempt;
    } else {
      x = &w->edges[w->candidate[(victim + length - 1) % length] - 1];
      q = x->by.q;
      attempt = x->by.attempt;
    }
    remove_attempt(w, q, attempt);
    drop_candidate(w);
    if (home_of(q) == n) {
      sentence(q, attempt, whole);
      return;
    }
    m.q = q;
    m.attempt = attempt;
    m.why = whole;
#ifdef CUT
    remember(home_of(q), w);
#endif
    put_letter(home_of(q), m);
  }

  static int go_on(walk* w, int origin) {
    for (;;) {
      int closed, o, k;
      if (!still_waits(w->first, w->all_waits, origin))
        return 0;
      if (w->candidate[0])
        return 1;
      closed = explore_here(w, origin);
      if (closes(w, origin) && find_cycle(w, origin)) {
        if (!confirm(w, origin))
          continue;
        if (confirming(w))
          return 1;
        pass_verdict(w, origin);
        continue;
      }
      if (closed)
        continue;
      ask(w, origin);
      for (o = 0; o < NODES; ++o)
        for (k = 0; k < OWED; ++k)
          if (w->answers[o][k].owed)
            return 1;
      return 0;
    }
  }

  static void end_walk(int origin) {
    walk* w = &S.walks[n][origin];
    walk old = *w;
    int i;
#ifdef CUT
    for (i = 0; i < NODES; ++i)
      if (w->missed & (1 << i))
        remember(i, w);
#endif
    memset(w, 0, sizeof(*w));
    for (i = 0; i < old.agains; ++i)
      begin(origin, old.again[i], (old.again_all >> i) & 1);
  }

  /* walks::start */
  static void begin(int origin, wait first, int all_waits) {
    walk* w = &S.walks[n][origin];
    int i;
    if (w->there) {
      for (i = 0; i < w->agains; ++i)
        if (!memcmp(&w->again[i], &first, sizeof(first)))
          break;
      check(i < AGAIN, "too many beginnings for this model");
      w->again[i] = first;
      w->again_all |= (all_waits != 0) << i;
      if (i == w->agains)
        ++w->agains;
      return;
    }
    w->there = 1;
    w->id = ++S.next_id[n];
    w->first = first;
    w->all_waits = all_waits;
    w->sessions = 1 << origin;
    if (first.node == n)
      reach_wait(w, first);
    if (all_waits)
      reach_session(w, origin, origin);
    if (!go_on(w, origin))
      end_walk(origin);
  }

  /* Answering: goes on by itself as far as it can. */
  static void answer_question(int from, letter x) {
    static walk g;
    letter out;
    blocker by[MOST];
    wait w;
    int q, s, k, asked = 1, more = 1;
    memset(&g, 0, sizeof(g));
    g.sessions = 1 << x.origin;
    memset(&out, 0, sizeof(out));
    out.what = answer;
    out.origin = x.origin;
    out.id = x.id;
    out.step = x.step;
    for (s = 0; s < SESSIONS; ++s)
      if ((x.sessions & (1 << s)) && home_of_session[s] == n)
        reach_session(&g, x.origin, s);
    for (q = 0; q < Q; ++q)
      if (x.waits[q])
        reach_wait(&g, make_wait(q, x.waits[q] - 1, n));
    while (more) {
      u8 sessions = g.sessions_to_ask;
      u64 waits;
      more = 0;
      g.sessions_to_ask = 0;
      for (s = 0; s < SESSIONS; ++s) {
        if (!(sessions & (1 << s)) || home_of_session[s] != n)
          continue;
        more = 1;
        waits_of(s, out.waits_of);
        add_session(&g, x.origin, s, out.waits_of);
        out.sessions |= 1 << s;
      }
      waits = g.waits_to_ask;
      for (q = 0; q < Q; ++q)
        for (k = 0; k < 3; ++k) {
          int b;
          w = make_wait(q, k, n);
          if (!(waits & bit_of(w)))
            continue;
          if ((!asked && closes(&g, x.origin)) || !blockers_of(w, by))
            continue;
          more = 1;
          for (b = 0; b < MOST; ++b) {
            claim c;
            if (!by[b].there || session_of(by[b].q) != x.origin
                || home_of(by[b].q) != n)
              continue;
            memset(&c, 0, sizeof(c));
            c.w = x.first;
            c.q = by[b].q; c.attempt = by[b].attempt; c.how = by[b].how;
            c.node = n; c.term = term_of[q];
            c.shared = is_shared[q]; c.kept = by[b].kept;
            standing_of(&c);
            if (c.waits) {
              by[b].said = c.standing;
              by[b].holds = c.holds;
            }
            if (c.standing == standing_none)
              memset(&by[b], 0, sizeof(by[b]));
          }
          add_wait(&g, x.origin, w, by, 0, 0);
          out.waits[q] = k + 1;
          memcpy(out.by[q], by, sizeof(by));
        }
      g.waits_to_ask = 0;
      asked = 0;
      if (closes(&g, x.origin))
        break;
    }
    for (k = 0; k < MOST; ++k)
      if (x.claims[k].there) {
        out.claims[k] = x.claims[k];
        standing_of(&out.claims[k]);
      }
    put_letter(from, out);
  }

  static void take_answer(int from, letter x) {
    walk* w = &S.walks[n][x.origin];
    int q, s, k, b, i, good = 1;
    if (!w->there || w->id != x.id)
      return;
    for (k = 0; k < OWED; ++k)
      if (w->answers[from][k].owed && w->answers[from][k].step == x.step)
        break;
    if (k < OWED) {
      int asked = w->answers[from][k].asked;
      for (; k + 1 < OWED; ++k)
        w->answers[from][k] = w->answers[from][k + 1];
      memset(&w->answers[from][k], 0, sizeof(w->answers[from][k]));
      /* learn */
      ++w->clock;
      for (s = 0; s < SESSIONS; ++s)
        if (x.sessions & (1 << s))
          add_session(w, x.origin, s, x.waits_of);
      for (q = 0; q < Q; ++q) {
        if (!x.waits[q])
          continue;
        for (b = 0; b < MOST; ++b)
          if (home_of(x.by[q][b].q) != from
              || session_of(x.by[q][b].q) != x.origin)
            x.by[q][b].said = x.by[q][b].holds = 0;
        add_wait(w, x.origin, make_wait(q, x.waits[q] - 1, from), x.by[q],
                 w->clock, asked);
      }
    } else if (w->confirmations[from].owed
               && w->confirmations[from].step == x.step) {
      int places = w->confirmations[from].places;
      memset(&w->confirmations[from], 0, sizeof(w->confirmations[from]));
      for (i = 0, k = 0; i < MOST; ++i)
        if (places & (1 << i)) {
          claim* c = &x.claims[k++];
          good &= accept(w, i, c->waits, c->standing, c->holds);
        }
      if (!good)
        drop_candidate(w);
      else if (!confirming(w))
        pass_verdict(w, x.origin);
    } else {
      return;
    }
    if (!go_on(w, x.origin))
      end_walk(x.origin);
  }

  /* -- clients -------------------------------------------------------------- */

  /* The client's word of a pending request ends: a deadline, a cancel, or a
   * verdict. */
  static void end_word(int q) {
    S.home[q].word = over;
    if (direct(q)) {
      abandon_wait(q, home_of(q));
      S.far[q][home_of(q)].elsewhere = 0;
    } else {
      S.home[q].post_cancel = 1;
    }
  }

  static void client_asks(int q) {
    int s = session_of(q), other, others = 0;
    home_side* h = &S.home[q];
    row* r = &ROW(q, home_of(q));
    n = home_of(q);
    if (direct(q) && goes_in(r, q)) {
      /* The fast path: it is never on the board. */
      r->holders |= 1 << q;
      h->word = has_it;
#ifndef INLINE_UNTOLD
      /* What waits elsewhere, or is on its way there, has held nothing when it
       * was asked for. */
      for each_of(s, other)
        if (on_board(other) && !direct(other))
          S.home[other].post_elsewhere = 1;
#endif
      return;
    }
    for each_of(s, other)
      if (on_board(other)) {
        others = 1;
        if (direct(other))
          S.far[other][n].elsewhere = 1;
        else
          S.home[other].post_elsewhere = 1;
      }
    h->word = pending;
    h->holds = holds_something(s);
    if (others && direct(q))
      S.far[q][n].elsewhere = 1;
    if (!direct(q)) {
      h->post_open = 1;
      return;
    }
    r->queue[r->size++] = q;
    if (holds_something(s) || others)
      begin_walk(q, n, 1);
    h->holds = 0;
  }

  /* At the beginning. */
  static void is_granted(int q) {
    home_side* h = &S.home[q];
    int o;
    h->word = has_it;
    for (o = 0; o < NODES; ++o)
      if (nodes_of[q] & (1 << o)) {
        ROW(q, o).holders |= 1 << q;
        if (!direct(q))
          S.far[q][o].state = complete;
      }
    if (direct(q))
      return;
    h->asked_for = h->is_whole = h->holds = 1;
    h->held = nodes_of[q];
  }

  static void flush(int from, int to);
  static void deliver_to_worker(int from, int to);

  /* At the beginning: it has its part at the lead, and has asked the others. */
  static void has_lead(int q) {
    home_side* h = &S.home[q];
    int o = lead_of(q);
    n = home_of(q);
    h->word = pending;
    h->asked_for = 1;
    h->asked = 1 << o;
    ROW(q, o).holders |= 1 << q;
    S.far[q][o].state = complete;
    home_granted(o, q, 0);
    for (o = 0; o < NODES; ++o)
      if (o != n && (h->asked & (1 << o))) {
        flush(n, o);
        deliver_to_worker(n, o);
        n = home_of(q);
      }
  }

  /* At the beginning: it waits, on one node that is not its home; a walk from it
   * has found nothing. */
  static void is_queued(int q) {
    home_side* h = &S.home[q];
    int o = lead_of(q);
    row* r = &ROW(q, o);
    h->word = pending;
    h->asked_for = 1;
    h->asked = 1 << o;
    h->holds = holds_something(session_of(q));
    S.far[q][o].state = waiting;
    r->queue[r->size++] = q;
  }

  static void client_releases(int q) {
    S.home[q].word = over;
    if (direct(q))
      free_row(q, home_of(q), 0);
    else
      S.home[q].post_release = 1;
  }

  static void open_posted(int q) {
    home_side* h = &S.home[q];
    int other;
    n = home_of(q);
    h->post_open = 0;
    if (h->word != pending) {
      forget(q);
      h->post_cancel = 0;
      return;
    }
    for each_of(session_of(q), other)
      h->elsewhere |= other != q && on_board(other);
#ifndef AGE_AS_ASKED
    /* After the look at the board: what is not there any more may be held. */
    h->holds |= holds_something(session_of(q));
#endif
    h->asked_for = 1;
    ask_part(q, lead_of(q), 0);
  }

  static void cancel_posted(int q) {
    home_side* h = &S.home[q];
    n = home_of(q);
    h->post_cancel = 0;
    if (!h->asked_for || h->is_whole)
      return;
    abandon_all(q);
    forget(q);
  }

  static void release_posted(int q) {
    int o;
    n = home_of(q);
    S.home[q].post_release = 0;
    for (o = 0; o < NODES; ++o)
      if (nodes_of[q] & (1 << o))
        to_part(o, release, q, 0, 0, 0);
    forget(q);
  }

  static void elsewhere_posted(int q) {
    n = home_of(q);
    S.home[q].post_elsewhere = 0;
    coordinator_waits_elsewhere(q);
  }

  static void grant(int q, int o) {
    leave_queue(q, o);
    ROW(q, o).holders |= 1 << q;
    if (direct(q)) {
      S.home[q].word = has_it;
      S.far[q][o].elsewhere = 0;
    } else {
      S.far[q][o].state = served;
    }
  }

  /* lock_table::grant: with one request of a session all that it covers. */
  static void grant_head(int o, int t) {
    row* r = &S.rows[o][t];
    int i;
    n = o;
    while (r->size && fits(r, r->queue[0])) {
      int q = r->queue[0];
      grant(q, o);
      for (i = 0; i < r->size;)
        if (lets_in(q, r->queue[i]))
          grant(r->queue[i], o);
        else
          ++i;
    }
  }

  static void hear(int q, int o) {
    n = o;
    S.far[q][o].state = complete;
    to_its_home(q, S.far[q][o].attempt);
  }

  static void deliver_to_worker(int from, int to) {
    n = to;
    worker_receive(take_order(&S.to_worker[link(from, to)], 0));
  }

  static void deliver_to_scope(int from, int to) {
    letter m = take_letter(&S.to_scope[link(from, to)]);
    n = to;
    switch (m.what) {
      case granted:
        home_granted(from, m.q, m.attempt);
        break;
      case question:
        answer_question(from, m);
        break;
      case answer:
        take_answer(from, m);
        break;
      case verdict:
        sentence(m.q, m.attempt, m.why);
        break;
    }
  }

  static void flush(int from, int to) {
    put_order(&S.to_worker[link(from, to)], take_order(&S.unsent[link(from, to)], 0));
  }

  static void start_walk(int q, int o) {
    int all = S.begin[q][o] & 2;
    wait w = make_wait(q, direct(q) ? 0 : S.far[q][o].attempt, o);
    n = o;
    S.begin[q][o] = 0;
    begin(session_of(q), w, all != 0);
  }

  static void start_walk_of_all(int s, int o) {
    n = o;
    S.begin_all[s][o] = 0;
    begin(s, make_wait(0, 0, 3), 1);
  }

#ifdef CUT
  /* walks::peer_back */
  static void link_up(int o) {
    int p = o == CUT_FROM ? CUT_TO : CUT_FROM, s, q;
    u8 some, all;
    n = o;
    S.up[n] |= 1 << p;
#ifndef BACK_TOO_SOON
    for (s = 0; s < SESSIONS; ++s) {
      walk* w = &S.walks[n][s];
      if (!w->there || !(w->missed & (1 << p)))
        continue;
      w->missed &= ~(1 << p);
      check(w->agains < AGAIN, "too many beginnings for this model");
      w->again[w->agains] = w->first;
      w->again_all |= (w->all_waits != 0) << w->agains;
      ++w->agains;
    }
#endif
    some = S.missed[n][p];
    all = S.missed_all[n][p];
    S.missed[n][p] = S.missed_all[n][p] = 0;
    for (q = 0; q < Q; ++q)
      if ((some & (1 << q))
          && still_waits(make_wait(q, 0, n), (all >> q) & 1, session_of(q)))
        begin(session_of(q), make_wait(q, 0, n), (all >> q) & 1);
  }
#endif

  /* -- the truth ------------------------------------------------------------ */

  typedef struct {
    u8 q, attempt, from, to, by, by_attempt, whole;
  } fact;

  static int truly_waits(int q, int o) {
    home_side* h = &S.home[q];
    if (h->word != pending || !hangs(q, o))
      return 0;
    return direct(q)
           || (h->asked_for && (h->asked & (1 << o))
               && S.far[q][o].attempt == h->attempt);
  }

  static int truly_holds(int q, int o) {
    home_side* h = &S.home[q];
    if (h->word == has_it)
      return 1;
    return !direct(q) && h->word == pending && h->asked_for
           && S.far[q][o].attempt == h->attempt
           && ((h->asked | h->held) & (1 << o));
  }

#define FACTS 24
  static int facts(fact* out) {
    int o, q, i, gate, size = 0;
    for (q = 0; q < Q; ++q)
      for (o = 0; o < NODES; ++o) {
        row* r = &ROW(q, o);
        if (!truly_waits(q, o))
          continue;
        for (i = 0; i < r->size && r->queue[i] != q; ++i)
          if (lets_in(r->queue[i], q))
            break;
        gate = i;
        for (i = -Q; i < gate; ++i) {
          int u = i < 0 ? i + Q : r->queue[i];
          if (i < 0 && (!(r->holders & (1 << u))
                        || (is_shared[q] && is_shared[u] && !r->kept)))
            continue;
          if (session_of(u) == session_of(q)
              || !(i < 0 ? truly_holds(u, o) : truly_waits(u, o)))
            continue;
          check(size < FACTS, "too much is true for this model");
          out[size].q = q;
          out[size].attempt = S.home[q].attempt;
          out[size].from = session_of(q);
          out[size].to = session_of(u);
          out[size].by = u;
          out[size].by_attempt = direct(u) ? 0 : S.home[u].attempt;
          out[size].whole = direct(u) || S.home[u].is_whole;
          ++size;
        }
      }
    return size;
  }

  /* A first lock counts from when its home hears of it; or from when it was
   * granted, if that is on its way. */
  static int age_may_be(int s) {
    int q, o;
    for each_of(s, q)
      for (o = 0; o < NODES; ++o)
        if (!direct(q) && truly_holds(q, o)
            && (S.far[q][o].state == served || S.far[q][o].state == complete))
          return 1;
    return age_of(s);
  }

  static void note_cycle(fact** all, int size) {
    int i, k, whole = 0;
    for (i = 0; i < size; ++i)
      whole |= all[i]->whole;
    for (i = 0; i < size; ++i) {
      fact* x = all[(i + size - 1) % size];
      int youngest = 1;
      for (k = 0; k < size; ++k)
        youngest &= k == i
                    || is_younger(all[i]->from, age_of(all[i]->from),
                                  all[k]->from, age_may_be(all[k]->from));
      if (youngest && whole)
        S.may_die |= 1u << name_of(all[i]->q, all[i]->attempt);
      else if (youngest)
        S.may_give_back |= 1u << name_of(x->by, x->by_attempt);
    }
  }

  /* How many cycles there are; what they allow. */
  static int look_for_cycles(void) {
    fact f[FACTS];
    fact* all[3];
    int size = facts(f), i, j, k, found = 0;
    for (i = 0; i < size; ++i)
      for (j = 0; j < size; ++j) {
        if (f[i].to != f[j].from)
          continue;
        all[0] = &f[i];
        all[1] = &f[j];
        if (f[j].to == f[i].from) {
          ++found;
          note_cycle(all, 2);
          continue;
        }
        for (k = 0; k < size; ++k)
          if (f[k].from == f[j].to && f[k].to == f[i].from) {
            all[2] = &f[k];
            ++found;
            note_cycle(all, 3);
          }
      }
    return found;
  }

  static int is_quiet(void) {
    int q, o, p, s;
    for (p = 0; p < LINKS; ++p)
      if (S.to_worker[p].size || S.to_scope[p].size || S.unsent[p].size)
        return 0;
    for (o = 0; o < NODES; ++o) {
      for (s = 0; s < SESSIONS; ++s)
        if (S.walks[o][s].there || S.begin_all[s][o])
          return 0;
      for (q = 0; q < Q; ++q)
        if (S.begin[q][o] || S.far[q][o].state == served)
          return 0;
      for (p = 0; p < TERMS; ++p)
        if (S.rows[o][p].size && fits(&S.rows[o][p], S.rows[o][p].queue[0]))
          return 0;
#ifdef CUT
      if (S.up[o] != (1 << NODES) - 1)
        return 0;
#endif
    }
    for (q = 0; q < Q; ++q)
      if (S.home[q].post_open || S.home[q].post_cancel
          || S.home[q].post_release || S.home[q].post_elsewhere)
        return 0;
    return 1;
  }

  static void after(void) {
    int o, p, q, t, quiet = is_quiet(), cycles = look_for_cycles();
    check(!quiet || !cycles, "no cycle is missed");
    memset(&S.can, 0, sizeof(S.can));
    for (q = 0; q < Q; ++q) {
      home_side* h = &S.home[q];
      S.can.ask[q] = nodes_of[q] && h->word == nothing;
      for (p = 0; p < q; ++p)
        if (session_of(p) == session_of(q) && S.home[p].word != has_it
#ifdef TOGETHER
            && S.home[p].word != pending
#endif
        )
          S.can.ask[q] = 0;
      S.can.release[q] = h->word == has_it && (quiet || ((MAY_GO >> q) & 1));
      S.can.end[q]
        = S.ends > 0 && h->word == pending && ((MAY_END >> q) & 1);
      S.can.open[q] = h->post_open;
      S.can.cancel[q] = h->post_cancel && !h->post_open;
      S.can.give_up[q] = h->post_release;
      S.can.elsewhere[q] = h->post_elsewhere && !h->post_open;
      for (o = 0; o < NODES; ++o) {
        S.can.hear[q][o] = S.far[q][o].state == served;
        /* Of one inbox: that its session waits elsewhere was posted first. */
        S.can.begin[q][o] = S.begin[q][o] != 0;
        for each_of(session_of(q), p)
          if (p != q && direct(q) && S.home[p].post_elsewhere)
            S.can.begin[q][o] = 0;
      }
    }
    for (o = 0; o < NODES; ++o) {
      for (t = 0; t < TERMS; ++t)
        S.can.grant[o][t] = S.rows[o][t].size
                            && fits(&S.rows[o][t], S.rows[o][t].queue[0]);
      for (q = 0; q < SESSIONS; ++q)
        S.can.begin_all[q][o] = S.begin_all[q][o];
    }
#ifdef CUT
    S.can.up[CUT_FROM] = !((S.up[CUT_FROM] >> CUT_TO) & 1);
    S.can.up[CUT_TO] = !((S.up[CUT_TO] >> CUT_FROM) & 1);
#endif
    for (p = 0; p < LINKS; ++p) {
      S.can.worker[p] = S.to_worker[p].size != 0;
      S.can.scope[p] = S.to_scope[p].size != 0;
#ifdef CUT
      if ((p == link(CUT_FROM, CUT_TO) && S.can.up[CUT_TO])
          || (p == link(CUT_TO, CUT_FROM) && S.can.up[CUT_FROM]))
        S.can.scope[p] = 0;
#endif
      S.can.flush[p] = S.unsent[p].size != 0;
    }
    S.can.finish = quiet;
    for (q = 0; q < Q; ++q)
      if (S.home[q].word == pending || S.home[q].word == has_it
          || S.can.ask[q])
        S.can.finish = 0;
  }

  static void nothing_is_left(void) {
    int q, o, t;
    for (o = 0; o < NODES; ++o) {
      for (t = 0; t < TERMS; ++t)
        check(!S.rows[o][t].holders && !S.rows[o][t].size,
              "nothing is left in a row");
      for (q = 0; q < Q; ++q)
        check(S.far[q][o].state == no_part, "no part is left");
    }
    for (q = 0; q < Q; ++q)
      check(!S.home[q].asked_for, "no request is left at its home");
  }

  /* For reading a trail: SHOW=1 ./pan -r */
  static void show(void) {
    fact f[FACTS];
    int i, q, o, s, size = facts(f);
    if (!getenv("SHOW"))
      return;
    for (q = 0; q < Q; ++q)
      printf("\t%d: word %d asked %d held %d attempt %d elsewhere %d holds %d\n",
             q, S.home[q].word, S.home[q].asked, S.home[q].held,
             S.home[q].attempt, S.home[q].elsewhere, S.home[q].holds);
    for (o = 0; o < NODES; ++o)
      for (i = 0; i < TERMS; ++i) {
        printf("\tnode %d term %d: holders %x%s queue", o, i,
               S.rows[o][i].holders, S.rows[o][i].kept ? " kept" : "");
        for (q = 0; q < S.rows[o][i].size; ++q)
          printf(" %d%s", S.rows[o][i].queue[q],
                 S.far[S.rows[o][i].queue[q]][o].elsewhere ? "e" : "");
        printf("\n");
      }
    for (o = 0; o < NODES; ++o)
      for (s = 0; s < SESSIONS; ++s)
        if (S.walks[o][s].there)
          printf("\twalk of %d on %d: edges %d candidate %d\n", s, o,
                 S.walks[o][s].edges[0].there + S.walks[o][s].edges[1].there,
                 S.walks[o][s].candidate[0]);
    for (i = 0; i < size; ++i)
      printf("\t%d waits for %d\n", f[i].q, f[i].by);
  }

#define GRANTED(q) is_granted(q);
#define AT_LEAD(q) has_lead(q);
#define QUEUED(q) is_queued(q);
#define HOME(session, node) home_of_session[session] = node;
#define ASK(session, which, term, nodes) \
  REQUEST_OF(session, 2 * session + which, term, nodes)
#define REQUEST_OF(session, q, term, nodes) \
  session_of_request[q] = session; term_of[q] = term; nodes_of[q] = nodes;
#define SHARED(q) is_shared[q] = 1;

  static void at_first(void) {
    memset(&S, 0, sizeof(S));
    PLAY
#ifdef CUT
    memset(S.up, (1 << NODES) - 1, sizeof(S.up));
    S.up[CUT_FROM] &= ~(1 << CUT_TO);
    S.up[CUT_TO] &= ~(1 << CUT_FROM);
#endif
#ifdef AT_FIRST
    AT_FIRST
#endif
    after();
  }
}

#define STEP(guard, action) \
  :: atomic { c_expr { now.s.can.guard } -> c_code { action; after(); show(); } }

#define AT(q, o) STEP(hear[q][o], hear(q, o)) STEP(begin[q][o], start_walk(q, o))
#if NODES > 2
#define AT_2(q) AT(q, 2)
#else
#define AT_2(q)
#endif
#define REQUEST(q) \
  STEP(ask[q], client_asks(q)) \
  STEP(release[q], client_releases(q)) \
  STEP(end[q], --now.s.ends; end_word(q)) \
  STEP(open[q], open_posted(q)) \
  STEP(cancel[q], cancel_posted(q)) \
  STEP(give_up[q], release_posted(q)) \
  STEP(elsewhere[q], elsewhere_posted(q)) \
  AT(q, 0) AT(q, 1) AT_2(q)
#if NODES > 2
#define BEGINS(s) STEP(begin_all[s][0], start_walk_of_all(s, 0)) \
  STEP(begin_all[s][1], start_walk_of_all(s, 1)) \
  STEP(begin_all[s][2], start_walk_of_all(s, 2))
#else
#define BEGINS(s) STEP(begin_all[s][0], start_walk_of_all(s, 0)) \
  STEP(begin_all[s][1], start_walk_of_all(s, 1))
#endif
#define LINK(i, o, p) \
  STEP(worker[i], deliver_to_worker(o, p)) \
  STEP(scope[i], deliver_to_scope(o, p)) \
  STEP(flush[i], flush(o, p))
#if TERMS > 2
#define NODE(o) STEP(grant[o][0], grant_head(o, 0)) \
  STEP(grant[o][1], grant_head(o, 1)) STEP(grant[o][2], grant_head(o, 2))
#elif TERMS > 1
#define NODE(o) STEP(grant[o][0], grant_head(o, 0)) \
  STEP(grant[o][1], grant_head(o, 1))
#else
#define NODE(o) STEP(grant[o][0], grant_head(o, 0))
#endif

init {
  atomic {
    c_code { at_first(); }
    if
    :: c_code { now.s.ends = 0; after(); }
#if ENDS > 0
    :: c_code { now.s.ends = ENDS; after(); }
#endif
    fi
  }
  do
  REQUEST(0)
  REQUEST(1)
  REQUEST(2)
  REQUEST(3)
#if Q > 4
  REQUEST(4)
#endif
#if Q > 5
  REQUEST(5)
#endif
  BEGINS(0)
  BEGINS(1)
#if SESSIONS > 2
  BEGINS(2)
#endif
#ifdef CUT
  STEP(up[CUT_FROM], link_up(CUT_FROM))
  STEP(up[CUT_TO], link_up(CUT_TO))
#endif
  NODE(0)
  NODE(1)
#if NODES > 2
  NODE(2)
  LINK(0, 0, 1)
  LINK(1, 0, 2)
  LINK(2, 1, 0)
  LINK(3, 1, 2)
  LINK(4, 2, 0)
  LINK(5, 2, 1)
#else
  LINK(0, 0, 1)
  LINK(1, 1, 0)
#endif
  :: atomic { c_expr { now.s.can.finish } -> c_code { nothing_is_left(); } }
     break
  od
}
