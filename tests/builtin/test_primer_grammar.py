import pytest

from mt.builtin.primer.clause import Adjunct, Clause
from mt.builtin.primer.lexicon import Noun, Place, Tense, Time, Verb, load_lexicon
from mt.builtin.primer.noun_phrase import (
    BARE,
    HOW_MANY,
    MANY,
    NO,
    NOT_A,
    NOT_BARE,
    NUMBERS,
    POSSESSIVES,
    SOME,
    THE,
    THIS,
    WHICH,
    A,
    Determiner,
    Phrase,
    it,
    name,
    noun_phrase,
    prepositional,
    pronoun,
    title_and_surname,
)
from mt.builtin.primer.sentence import (
    Sentence,
    coordinated,
    question,
    question_with_subordinate,
    statement,
    subordinate_first,
    with_subordinate,
)

LEXICON = load_lexicon()


# Words, for writing clauses down by hand.


def noun(english: str) -> Noun:
    return LEXICON.nouns[english]


def np(words: str) -> Phrase:
    """The phrase for "the old man", "two dogs", "not-a book": determiner, adjective if any, noun."""
    determiners: dict[str, Determiner] = {
        "the": THE, "this": THIS, "these": THIS, "a": A, "no": NO, "not-a": NOT_A, "not-any": NOT_BARE,
        "many": MANY, "some": SOME, "which": WHICH, "how-many": HOW_MANY,
    }  # fmt: skip
    determiners |= {possessive.english: possessive for possessive in POSSESSIVES}
    determiners |= {number.english_plural: number for number in NUMBERS}
    rest = words.split()
    determiner = determiners[rest.pop(0)] if rest[0] in determiners else BARE
    adjective = LEXICON.adjectives[rest.pop(0)] if len(rest) == 2 else None
    plural = rest[0] not in LEXICON.nouns
    [found] = [n for n in LEXICON.nouns.values() if rest[0] == (n.english_plural if plural else n.english)]
    return noun_phrase(found, determiner, plural, adjective)


def verb(lemma: str) -> Verb:
    if lemma == "be":
        return LEXICON.be
    return next(v for v in LEXICON.verbs + LEXICON.saying if v.lemma == lemma)


def when(english: str) -> Time:
    return next(time for time in LEXICON.times + LEXICON.spans if time.english == english)


def at(words: str) -> Adjunct:
    phrase = np(words)
    place = place_of(phrase)
    return Adjunct(f"{place.at[0]} {phrase.english}", prepositional(place.at[1], phrase, "dative"))


def to(words: str) -> Adjunct:
    phrase = np(words)
    place = place_of(phrase)
    return Adjunct(f"{place.to[0]} {phrase.english}", prepositional(place.to[1], phrase, place.to_case))


def place_of(phrase: Phrase) -> Place:
    return LEXICON.places[phrase.lemma]


def with_(phrase: Phrase) -> Adjunct:
    return Adjunct(f"with {phrase.english_object}", prepositional("mit", phrase, "dative"))


def for_(phrase: Phrase) -> Adjunct:
    return Adjunct(f"for {phrase.english_object}", prepositional("für", phrase, "accusative"))


def without(phrase: Phrase) -> Adjunct:
    return Adjunct(f"without {phrase.english_object}", prepositional("ohne", phrase, "accusative"))


def of(lemma: str, phrase: Phrase) -> Adjunct:
    """The object with the preposition that the verb ``lemma`` wants."""
    wanting = verb(lemma)
    german = prepositional(wanting.german_preposition, phrase, wanting.object_case)
    return Adjunct(f"{wanting.preposition} {phrase.english_object}", german)


def is_(english: str) -> Adjunct:
    return Adjunct(english, LEXICON.adjectives[english].german)


def clause(
    subject: Phrase,
    lemma: str,
    object: Phrase | None = None,
    *,
    tense: Tense = "present",
    modal: str = "",
    time: str = "",
    receiver: Phrase | None = None,
    complement: Adjunct | None = None,
    circumstance: Adjunct | None = None,
    negated: bool = False,
) -> Clause:
    return Clause(
        subject,
        verb(lemma),
        "modal" if modal else tense,
        LEXICON.modals[modal] if modal else None,
        object,
        receiver,
        complement,
        circumstance,
        when(time) if time else None,
        negated,
    )


WHO = Phrase("who", "who", "who", ("wer", "wen", "wem"), "er")
WHAT = Phrase("what", "what", "what", ("was", "was", "was"), "er")
ME, HE, SHE, WE, THEY = (pronoun(key) for key in ("I", "he", "she", "we", "they"))
DU, SIE = pronoun("familiar"), pronoun("formal")
WHY, WHEN = Time("why", "warum", frozenset()), Time("when", "wann", frozenset())


# Each German sentence was written by hand, not by the grammar.
# fmt: off
GOLDEN: list[tuple[str, Sentence, str, str]] = [
    ("accusative masculine, weak ending", statement(clause(np("the old man"), "see", np("the young boy"))),
     "The old man sees the young boy.", "Der alte Mann sieht den jungen Jungen."),
    ("mixed endings, neuter and masculine; a progressive", statement(clause(np("a small child"), "eat",
     np("a green apple"), tense="progressive", time="right now")),
     "A small child is eating a green apple right now.",
     "Ein kleines Kind isst gerade einen grünen Apfel."),
    ("feminine, possessive", statement(clause(np("my sister"), "need", np("a new bag"))),
     "My sister needs a new bag.", "Meine Schwester braucht eine neue Tasche."),
    ("strong endings: accusative feminine and plural after a number",
     statement(clause(np("two young women"), "drink", np("cold milk"), tense="progressive")),
     "Two young women are drinking cold milk.", "Zwei junge Frauen trinken kalte Milch."),
    ("strong dative neuter", statement(clause(HE, "wash", np("the car"), tense="progressive",
     circumstance=with_(np("warm water")))),
     "He is washing the car with warm water.", "Er wäscht das Auto mit warmem Wasser."),
    ("an adjective that loses its e", statement(clause(np("this expensive coat"), "be",
     complement=is_("dirty"))),
     "This expensive coat is dirty.", "Dieser teure Mantel ist schmutzig."),
    ("dative verb, dative plural", statement(clause(np("the waiter"), "help", np("many old guests"),
     time="often")),
     "The waiter often helps many old guests.", "Der Kellner hilft oft vielen alten Gästen."),
    ("n-declension in the dative", statement(clause(SHE, "thank", np("the policeman"), tense="past",
     time="yesterday")),
     "She thanked the policeman yesterday.", "Sie hat gestern dem Polizisten gedankt."),
    ("n-declension of a title", statement(clause(ME, "wait for", complement=of("wait for",
     title_and_surname("Weber", "m")), tense="progressive")),
     "I am waiting for Mr Weber.", "Ich warte auf Herrn Weber."),
    ("dative before accusative", statement(clause(np("the mother"), "give", np("a red ball"),
     receiver=np("the child"), tense="past", time="yesterday")),
     "The mother gave the child a red ball yesterday.",
     "Die Mutter hat gestern dem Kind einen roten Ball gegeben."),
    ("pronoun first, whatever the case", statement(clause(np("the uncle"), "show", np("the house"),
     receiver=THEY, tense="future", time="tomorrow")),
     "The uncle will show them the house tomorrow.", "Der Onkel wird ihnen morgen das Haus zeigen."),
    ("accusative pronoun before the dative noun", statement(clause(ME, "send", it(noun("letter")),
     receiver=np("my father"), tense="future", time="soon")),
     "I will send it to my father soon.", "Ich werde ihn bald meinem Vater schicken."),
    ("accusative pronoun before the dative pronoun", statement(clause(WE, "bring", it(noun("cake")),
     receiver=HE, modal="must")),
     "We must bring it to him.", "Wir müssen ihn ihm bringen."),
    ("inversion after a time", statement(clause(np("the boy"), "read", np("a book"), tense="past",
     time="yesterday"), "time"),
     "Yesterday the boy read a book.", "Gestern hat der Junge ein Buch gelesen."),
    ("inversion after a time of several words, dative of the number", statement(clause(np("the train"),
     "come", complement=to("the station"), tense="past", time="three days ago"), "time"),
     "Three days ago the train came to the station.", "Vor drei Tagen ist der Zug zum Bahnhof gekommen."),
    ("time before place, place before what is new", statement(clause(WE, "buy", np("fresh bread"),
     tense="past", time="today", circumstance=at("the supermarket"))),
     "We bought fresh bread at the supermarket today.",
     "Wir haben heute im Supermarkt frisches Brot gekauft."),
    ("what is known before the place", statement(clause(SHE, "read", np("the newspaper"),
     time="every morning", circumstance=at("the kitchen"))),
     "She reads the newspaper in the kitchen every morning.",
     "Sie liest jeden Morgen die Zeitung in der Küche."),
    ("where: dative", statement(clause(np("the cat"), "sit", complement=at("the table"),
     tense="progressive")),
     "The cat is sitting on the table.", "Die Katze sitzt auf dem Tisch."),
    ("where to: accusative", statement(clause(np("the man"), "put", np("the book"),
     complement=to("the table"), tense="progressive")),
     "The man is putting the book on the table.", "Der Mann legt das Buch auf den Tisch."),
    ("ins, and company before the destination", statement(clause(ME, "go", complement=to("the museum"),
     circumstance=with_(np("my brother")), tense="progressive", time="today")),
     "I am going to the museum with my brother today.", "Ich gehe heute mit meinem Bruder ins Museum."),
    ("zur, without + accusative", statement(clause(THEY, "go", complement=to("the school"),
     circumstance=without(np("their dog")), time="always")),
     "They always go to the school without their dog.", "Sie gehen immer ohne ihren Hund zur Schule."),
    ("für + accusative, am", statement(clause(HE, "repair", np("the clock"),
     circumstance=for_(np("his aunt")), tense="past", time="on Monday"), "time"),
     "On Monday he repaired the clock for his aunt.",
     "Am Montag hat er die Uhr für seine Tante repariert."),
    ("vom", statement(clause(SHE, "dream of", complement=of("dream of", np("the king")),
     time="every evening")),
     "She dreams of the king every evening.", "Sie träumt jeden Abend vom König."),
    ("separable verb", statement(clause(np("our grandmother"), "open", np("the window"),
     tense="progressive", time="right now")),
     "Our grandmother is opening the window right now.", "Unsere Großmutter macht gerade das Fenster auf."),
    ("separable verb, perfect, English particle before a noun", statement(clause(np("the father"),
     "pick up", np("the children"), tense="past", time="today")),
     "The father picked up the children today.", "Der Vater hat heute die Kinder abgeholt."),
    ("separable verb with a modal, English particle after a pronoun", statement(clause(ME, "pick up", THEY,
     modal="can", time="tomorrow")),
     "I can pick them up tomorrow.", "Ich kann sie morgen abholen."),
    ("separable verb in a subordinate clause", with_subordinate(clause(np("the guest"), "be",
     complement=is_("happy")), ("because", "weil"), clause(np("his son"), "call", np("the lady"),
     tense="progressive")),
     "The guest is happy because his son is calling the lady.",
     "Der Gast ist glücklich, weil sein Sohn die Dame anruft."),
    ("perfect with sein", statement(clause(np("my daughters"), "get up", tense="perfect", time="already")),
     "My daughters have already got up.", "Meine Töchter sind schon aufgestanden."),
    ("a strong participle, schon after what is known", statement(clause(np("the girl"), "write",
     np("the letter"), tense="perfect", time="already")),
     "The girl has already written the letter.", "Das Mädchen hat den Brief schon geschrieben."),
    ("noch nicht", statement(clause(THEY, "find", np("the key"), tense="perfect", time="yet",
     negated=True)),
     "They have not found the key yet.", "Sie haben den Schlüssel noch nicht gefunden."),
    ("nicht at the end of the middle", statement(clause(np("the boy"), "read", np("the book"),
     tense="progressive", time="today", negated=True)),
     "The boy is not reading the book today.", "Der Junge liest das Buch heute nicht."),
    ("nicht before a place", statement(clause(np("the children"), "play", circumstance=at("the garden"),
     tense="progressive", negated=True)),
     "The children are not playing in the garden.", "Die Kinder spielen nicht im Garten."),
    ("nicht before an object with a preposition", statement(clause(SHE, "think of",
     complement=of("think of", np("the horse")), negated=True)),
     "She does not think of the horse.", "Sie denkt nicht an das Pferd."),
    ("nicht before a predicate", statement(clause(np("the soup"), "be", complement=is_("hot"),
     negated=True)),
     "The soup is not hot.", "Die Suppe ist nicht heiß."),
    ("nicht before the prefix", statement(clause(WE, "close", np("the door"), tense="progressive",
     negated=True)),
     "We are not closing the door.", "Wir machen die Tür nicht zu."),
    ("kein for not ... a", statement(clause(ME, "have", np("not-a bicycle"), negated=True)),
     "I do not have a bicycle.", "Ich habe kein Fahrrad."),
    ("kein with a plural adjective", statement(clause(HE, "buy", np("not-any expensive shoes"),
     modal="want", negated=True)),
     "He does not want to buy expensive shoes.", "Er will keine teuren Schuhe kaufen."),
    ("kein with a substance", statement(clause(np("the aunt"), "drink", np("not-any coffee"),
     negated=True)),
     "The aunt does not drink coffee.", "Die Tante trinkt keinen Kaffee."),
    ("kein in the subject", statement(clause(np("no child"), "like", np("cold soup"))),
     "No child likes cold soup.", "Kein Kind mag kalte Suppe."),
    ("kein in the dative", statement(clause(np("the queen"), "answer", np("not-a woman"), tense="past",
     time="yesterday", negated=True)),
     "The queen did not answer a woman yesterday.", "Die Königin hat gestern keiner Frau geantwortet."),
    ("must not have to", statement(clause(np("the men"), "work", modal="must", time="on Sunday",
     negated=True)),
     "The men do not have to work on Sunday.", "Die Männer müssen am Sonntag nicht arbeiten."),
    ("dürfen", statement(clause(np("the girls"), "swim", modal="be allowed", time="today")),
     "The girls are allowed to swim today.", "Die Mädchen dürfen heute schwimmen."),
    ("möchte, inversion", statement(clause(np("my uncle"), "visit", np("the city"), modal="would like",
     time="next week"), "time"),
     "Next week my uncle would like to visit the city.",
     "Nächste Woche möchte mein Onkel die Stadt besuchen."),
    ("cannot", statement(clause(ME, "find", np("my shoes"), modal="can", negated=True)),
     "I cannot find my shoes.", "Ich kann meine Schuhe nicht finden."),
    ("verb last with modal", with_subordinate(clause(np("the woman"), "know"), ("that", "dass"),
     clause(np("her brother"), "tidy up", np("the room"), modal="must", time="today")),
     "The woman knows that her brother must tidy up the room today.",
     "Die Frau weiß, dass ihr Bruder heute das Zimmer aufräumen muss."),
    ("verb last with perfect", with_subordinate(clause(ME, "believe"), ("that", "dass"),
     clause(np("the dog"), "eat", np("the meat"), tense="past", time="yesterday")),
     "I believe that the dog ate the meat yesterday.",
     "Ich glaube, dass der Hund gestern das Fleisch gegessen hat."),
    ("verb last with werden", with_subordinate(clause(THEY, "hope"), ("that", "dass"),
     clause(np("the guests"), "arrive", complement=at("the station"), tense="future", time="soon")),
     "They hope that the guests will arrive at the station soon.",
     "Sie hoffen, dass die Gäste bald am Bahnhof ankommen werden."),
    ("subordinate clause in front", subordinate_first(("if", "wenn"), clause(np("the father"), "be",
     complement=is_("tired")), clause(HE, "sleep", modal="can", circumstance=at("the garden"))),
     "If the father is tired, he can sleep in the garden.",
     "Wenn der Vater müde ist, kann er im Garten schlafen."),
    ("obwohl", subordinate_first(("although", "obwohl"), clause(name("Anna", "f"), "be",
     complement=is_("ill")), clause(SHE, "work", tense="progressive", time="today")),
     "Although Anna is ill, she is working today.", "Obwohl Anna krank ist, arbeitet sie heute."),
    ("it, feminine and masculine", coordinated(clause(np("the lamp"), "be", complement=is_("cheap")),
     ("but", "aber"), clause(WE, "need", it(noun("lamp")), negated=True)),
     "The lamp is cheap, but we do not need it.", "Die Lampe ist billig, aber wir brauchen sie nicht."),
    ("it, nominative masculine", with_subordinate(clause(SHE, "take off", np("the coat"),
     tense="progressive"), ("because", "weil"), clause(it(noun("coat")), "be", complement=is_("dirty"))),
     "She is taking off the coat because it is dirty.", "Sie zieht den Mantel aus, weil er schmutzig ist."),
    ("yes or no, verb first", question(clause(np("our sister"), "sing", modal="can")),
     "Can our sister sing?", "Kann unsere Schwester singen?"),
    ("do-support, separable verb, du", question(clause(DU, "invite", np("my sister"), tense="past",
     time="yesterday"), None, ("Max", "Max")),
     "Max, did you invite my sister yesterday?", "Max, hast du gestern meine Schwester eingeladen?"),
    ("du with a vowel change", question(clause(DU, "sleep", tense="progressive"), None, ("Lena", "Lena")),
     "Lena, are you sleeping?", "Lena, schläfst du?"),
    ("Sie", question(clause(SIE, "see", np("the white birds")), None, ("Mrs Becker", "Frau Becker")),
     "Mrs Becker, do you see the white birds?", "Frau Becker, sehen Sie die weißen Vögel?"),
    ("dich and dir and Ihnen", statement(clause(np("the policewoman"), "follow", SIE, tense="progressive"),
     "subject", ("Mr Weber", "Herr Weber")),
     "Mr Weber, the policewoman is following you.", "Herr Weber, die Polizistin folgt Ihnen."),
    ("wer", question(clause(WHO, "bake", np("the cake"), tense="past", time="this morning"), "subject"),
     "Who baked the cake this morning?", "Wer hat heute Morgen den Kuchen gebacken?"),
    ("wen", question(clause(np("the lady"), "visit", WHO, tense="progressive"), "object"),
     "Who is the lady visiting?", "Wen besucht die Dame?"),
    ("wem", question(clause(np("the boys"), "help", WHO, tense="progressive"), "object"),
     "Who are the boys helping?", "Wem helfen die Jungen?"),
    ("was, and a preposition left behind in English", question(clause(HE, "look for", WHAT,
     tense="progressive"), "object"),
     "What is he looking for?", "Was sucht er?"),
    ("welchen", question(clause(SHE, "put on", np("which coat"), tense="progressive"), "object"),
     "Which coat is she putting on?", "Welchen Mantel zieht sie an?"),
    ("wie viele, dative", question(clause(DU, "thank", np("how-many women"), tense="past", time="today"),
     "object", ("Paul", "Paul")),
     "Paul, how many women did you thank today?", "Paul, wie vielen Frauen hast du heute gedankt?"),
    ("wo", question(clause(np("the king"), "live", complement=Adjunct("where", "wo")), "complement"),
     "Where does the king live?", "Wo wohnt der König?"),
    ("wohin", question(clause(np("the children"), "run", complement=Adjunct("where", "wohin"),
     tense="progressive"), "complement"),
     "Where are the children running?", "Wohin laufen die Kinder?"),
    ("warum ... nicht", question(Clause(np("the boy"), verb("eat"), "past", object=np("the egg"), time=WHY,
     negated=True), "time"),
     "Why did the boy not eat the egg?", "Warum hat der Junge das Ei nicht gegessen?"),
    ("wann", question(Clause(THEY, verb("sell"), "future", object=np("the old house"), time=WHEN), "time"),
     "When will they sell the old house?", "Wann werden sie das alte Haus verkaufen?"),
    ("ob", question_with_subordinate(clause(DU, "know"), ("whether", "ob"), clause(np("the bus"), "come",
     complement=to("the village"), tense="progressive"), ("Sophie", "Sophie")),
     "Sophie, do you know whether the bus is coming to the village?",
     "Sophie, weißt du, ob der Bus ins Dorf kommt?"),
    ("war", statement(clause(np("these cows"), "be", complement=is_("hungry"), tense="past",
     time="yesterday")),
     "These cows were hungry yesterday.", "Diese Kühe waren gestern hungrig."),
    ("einige, strong", statement(clause(np("some rich men"), "buy", np("ten black horses"), tense="future",
     time="in two weeks")),
     "Some rich men will buy ten black horses in two weeks.",
     "Einige reiche Männer werden in zwei Wochen zehn schwarze Pferde kaufen."),
    ("an", statement(clause(np("a angry guest"), "eat", np("a egg"), tense="progressive")),
     "An angry guest is eating an egg.", "Ein wütender Gast isst ein Ei."),
]
# fmt: on


@pytest.mark.parametrize(
    ("sentence", "english", "german"), [row[1:] for row in GOLDEN], ids=[row[0] for row in GOLDEN]
)
def test_grammar_says_what_was_written_by_hand(sentence: Sentence, english: str, german: str) -> None:
    assert (sentence.english, sentence.german) == (english, german)


# The tables of a school grammar: nominative, accusative, dative.
TABLES = {
    "the old man": "der alte Mann, den alten Mann, dem alten Mann",
    "the old woman": "die alte Frau, die alte Frau, der alten Frau",
    "the old house": "das alte Haus, das alte Haus, dem alten Haus",
    "the old houses": "die alten Häuser, die alten Häuser, den alten Häusern",
    "this old man": "dieser alte Mann, diesen alten Mann, diesem alten Mann",
    "these old women": "diese alten Frauen, diese alten Frauen, diesen alten Frauen",
    "a old man": "ein alter Mann, einen alten Mann, einem alten Mann",
    "a old woman": "eine alte Frau, eine alte Frau, einer alten Frau",
    "a old house": "ein altes Haus, ein altes Haus, einem alten Haus",
    "no old houses": "keine alten Häuser, keine alten Häuser, keinen alten Häusern",
    "our old bicycle": "unser altes Fahrrad, unser altes Fahrrad, unserem alten Fahrrad",
    "her old shoes": "ihre alten Schuhe, ihre alten Schuhe, ihren alten Schuhen",
    "three old men": "drei alte Männer, drei alte Männer, drei alten Männern",
    "many old dogs": "viele alte Hunde, viele alte Hunde, vielen alten Hunden",
    "some new cars": "einige neue Autos, einige neue Autos, einigen neuen Autos",
    "cold juice": "kalter Saft, kalten Saft, kaltem Saft",
    "cold milk": "kalte Milch, kalte Milch, kalter Milch",
    "cold water": "kaltes Wasser, kaltes Wasser, kaltem Wasser",
    "the dark room": "das dunkle Zimmer, das dunkle Zimmer, dem dunklen Zimmer",
    "the boy": "der Junge, den Jungen, dem Jungen",
    "the bear": "der Bär, den Bären, dem Bären",
    "which girl": "welches Mädchen, welches Mädchen, welchem Mädchen",
}


@pytest.mark.parametrize(("words", "table"), TABLES.items())
def test_noun_phrases_decline_as_in_a_school_grammar(words: str, table: str) -> None:
    assert ", ".join(np(words).german) == table
